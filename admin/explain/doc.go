// Package explain finds out why a name does not resolve, or that it does, from what package admin has read of a
// cluster, of its broker and of DNS servers (docs/spec/explain.md). It is pure: values in, a value out, no client and
// no clock.
//
//	Input ──parse──► target ─┬─ summarize ──► the exporting clusters: record, heartbeat, endpoints there and here
//	                         └─ evaluate ───► what DNS should answer (cache, index, resolver)
//	                                │
//	                                ▼
//	      name ► kinds ► namespace ► membership ► controller ► broker ► exports ► heartbeats ► import ► endpoints ► question ► servers
//	                                │         each check adds steps: ok, wrong, warning, unknown, skipped
//	                                ▼
//	                             Report: the first cause, with its code, and the chain up to it
//
// The chain follows the way of a change from an export to an answer, so that the first step that is wrong is the cause,
// and what follows from it is not reported in its place. Whether a fault can be the cause is a question of its own: a
// member of three whose heartbeat has expired does not explain an empty answer. Such a fault is a warning, and the
// verdict only if nothing else is.
package explain
