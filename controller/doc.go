// Package controller exports services of this cluster to a broker and imports what all members of the clusterset export:
// the export/merge controller, complete (spec: the controller's rules, sections 1 to 10).
//
// [Run] is one instance. Any number may run for one cluster; a Lease says which of them acts.
package controller
