// Package cause finds out why a name does not resolve, or that it does, from what was read of a
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
// The chain follows the way of a change from an export to an answer, so that the first wrong step is the cause, and its
// effects are not reported in its place. A fault need not be the cause: a member of three with an expired heartbeat
// does not explain an empty answer. Such a fault is a warning, and the verdict only if there is no other.
package cause
