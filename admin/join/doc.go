// Package join prepares a broker, makes a cluster a member, takes a member out, and uninstalls, with the rights of an
// administrator of the broker and of the member (docs/spec/controller.md 2, docs/spec/controller.md 7).
//
// Each function below talks to one or both of these API servers. The numbers are the order in which [Join] writes:
//
//	broker                                             member
//	------                                             ------
//	by Init, once:                                     4  CRDs that are missing
//	   CRDs Member, ExportedService, Inventory         5  admission policies on ClusterProperties
//	   ClusterRole clusterset-member                   6  Namespace clusterset-system
//	   PriorityLevelConfiguration                      7  ClusterProperty cluster.clusterset.k8s.io
//	   admission policies                              8  Secret clusterset-broker, with a token that
//	                                                      the broker issues for the ServiceAccount
//	by Join, for each member:                          9  ClusterProperty clusterset.k8s.io
//	1  Member ID                                               |
//	2  what limits the member: Namespace, policy               | from here on the cluster is a member:
//	   binding, ResourceQuota, FlowSchema                      v its controller starts to work
//	3  what lets it write: ServiceAccount, Role,
//	   ClusterRole, three bindings                     10 DNS server and controller, if they are to be installed
//	                                                   11 the forwarding of the zone in the cluster's own DNS server
//
// [Init] applies the CRDs and manifests that all members share, and updates older versions of them.
//
// [Join] first reads and checks everything; if the cluster cannot join, it returns an error before the first write.
// Then it writes in the order above. Creating the Member reserves the cluster id and the VIP CIDRs, so it comes first.
// Limits come before rights, so that no right exists without its limit. ClusterProperty clusterset.k8s.io ends the
// join: it exists exactly while the cluster is a member. The installation comes after it, and so finds a credential and
// a membership.
//
// [Leave] goes the other way. It annotates ClusterProperty clusterset.k8s.io, which stops the controller from writing;
// deletes the member's exports on the broker; deletes what the controller imported into the cluster; deletes what Join
// wrote to the broker, in reverse order and the Member last; and deletes the Secret and ClusterProperty
// clusterset.k8s.io. The cluster id stays.
//
// [Remove] does the broker's part of Leave for a cluster that no longer exists, or that an administrator of the broker
// takes out. Of the objects on the broker it keeps Namespace and ServiceAccount, with a mark by which the cluster
// learns of it.
//
// [Uninstall] removes from a cluster that is no longer a member what Join left or installed there, and
// [UninstallBroker] from a broker without members what Init wrote.
//
// Init, Join, Leave, Remove and Uninstall can be interrupted after any write and run again; the second run does the
// rest. Four properties make that true:
//
//   - Writes are server-side applies of complete objects, so a repeated write changes nothing.
//   - Deletes name the UID of the object, and an object that is already gone counts as deleted.
//   - The checks of Join accept what an earlier, interrupted Join of the same cluster has left. The Member holds the
//     UID of the cluster's Namespace kube-system.
//   - The first write decides whether the cluster id is taken; ClusterProperty clusterset.k8s.io, whether the cluster
//     is a member. Everything between them belongs to exactly one cluster.
package join
