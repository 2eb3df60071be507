// Package controller exports services of this cluster to a broker, and imports the services that all members of the
// clusterset export. The rules are in docs/spec/controller.md.
//
// [Run] is one instance. Any number of instances may run for one cluster; a Lease elects the leader (package lease),
// and only the leader writes. This package has the options and puts the parts together; the packages below it do the
// work.
//
// A term of leadership, in this order:
//
//	Run --> lease.Election --> term.run
//	                             | 1. wait until the member's API server has all kinds (member.CheckKinds)
//	                             | 2. follow it, and wait until its caches are complete (member.Cluster)
//	                             | 3. build all parts, each complete when it is made (newParts)
//	                             v 4. add handlers, then run everything until the term, the identity or the kinds end
//
//	   lower packages                          parts                             notified by
//	+--------------------------+   +-----------------------------+
//	| member.Cluster           |-->| exporter.Exporter.Reconcile |<-- queue "exports" <--+
//	| broker.Broker            |   | importer.Importer.Reconcile |<-- queue "imports" <--+-- requeuer
//	| identity.Membership      |   +-----------------------------+                      |
//	| safety.Freezes, Expiry   |          reads of what was decided                     |
//	|                          |   changes of objects, of membership, of freeze reasons |
//	+--------------------------+--------------------------------------------------------+
//
// Imports go one way: controller -> {exporter, importer} -> identity -> safety -> {member, broker} -> the pure
// packages. No part points back to what owns it; a part notifies by a function that it is given.
//
// How one export travels: a change of the ServiceExport, its Service or its EndpointSlices puts the service into queue
// "exports". The exporter computes record and slices (export.From), allocates a clusterset IP if this cluster has to,
// writes the difference to the broker, and reports in the conditions Valid and Ready.
//
// How one import travels: a change of a record or a slice on the broker, or of an imported object here, puts the
// service into queue "imports". The importer merges the records of all members (merge.Merge), compares with what exists
// (desired.Diff), writes the difference, and reports in the condition Ready of the import and Conflict of our own
// ServiceExport.
package controller
