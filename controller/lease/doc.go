// Package lease decides which instance of the controller writes (docs/spec/controller.md 1).
//
// It has two parts. An [Election] holds a Kubernetes Lease by client-go's leader election: one of several instances
// gets it and renews it every 2 s. The clients of that instance pass a [Fence]: it lets a request that writes through
// only while the last renewal is less than 10 s old, and it counts such requests.
//
// The election alone is not enough. An instance that is paused, by the kernel, a hypervisor or a debugger, goes on
// where it stopped, finds its context still alive, and writes once more before any timer fires, although another
// instance leads by now. The fence compares clocks at each write, so it needs no timer to have fired. It is stricter
// than the Lease:
//
//	leader   renewal sent ─────────── 10 s ──────────▶ fence shut, elector gives up
//	others            └─ renewal seen ───────────── 15 s ─────────────▶ may take the Lease
//
// The fence counts from the moment the renewal was sent, and others count from a later one, when they saw it. So at
// least 5 s pass between the last write of one leader and the first of the next, which leaves room for a write under
// way. When an instance releases the Lease by itself, the fence shuts before the request to release is sent.
//
// [Election.Run] gives up the Lease only after the term has returned: the next leader finds all workers of the last one
// gone.
package lease
