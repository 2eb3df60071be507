// Package admin does what an administrator does to a clusterset, with the rights of an administrator of the broker and of the
// member: it prepares a broker, makes a cluster a member, takes a member out, and shows the state of the clusterset
// (docs/spec/controller.md 2, docs/spec/controller.md 7). A running clusterset does not need this package.
//
// Each function below talks to one or both of these API servers. The numbers are the order in which [Join] writes:
//
//	broker                                             member
//	------                                             ------
//	by Init, once:                                     4  CRDs that are missing
//	   CRDs Member, ExportedService                    5  admission policies on ClusterProperties
//	   ClusterRole clusterset-member                   6  Namespace clusterset-system
//	   PriorityLevelConfiguration                      7  ClusterProperty cluster.clusterset.k8s.io
//	   admission policies                              8  Secret clusterset-broker, with a token that
//	                                                      the broker issues for the ServiceAccount
//	by Join, for each member:                          9  ClusterProperty clusterset.k8s.io
//	1  Member ID                                               |
//	2  what limits the member: Namespace, policy               | from here on the cluster is a member:
//	   binding, ResourceQuota, FlowSchema                      v its controller starts to work
//	3  what lets it write: ServiceAccount, Role,
//	   ClusterRole, three bindings
//
// [Init] applies the CRDs and manifests that all members share, and updates older versions of them.
//
// [Join] first reads everything and checks everything; if the cluster cannot join, Join returns an error before the first
// write. Then it writes in the order above. Creating the Member reserves the cluster id and the VIP CIDR, so it comes first.
// Limits come before rights, so that no right exists without its limit. ClusterProperty clusterset.k8s.io comes last: it exists
// exactly while the cluster is a member.
//
// [Leave] goes the other way. It annotates ClusterProperty clusterset.k8s.io, which stops the controller from writing; deletes
// the member's exports on the broker; deletes what the controller imported into the cluster; deletes what Join wrote to the
// broker, in reverse order and the Member last; and deletes the Secret and ClusterProperty clusterset.k8s.io. The cluster id
// stays.
//
// [Remove] does the broker's part of Leave for a cluster that no longer exists, or that an administrator of the broker takes out. Of the
// objects on the broker it keeps Namespace and ServiceAccount, with a mark by which the cluster learns of it.
//
// [Status] only reads. It reports members, heartbeats, exports, conflicts and the credential, and what is wrong with them.
//
// Each of them can be interrupted after any write and run again; the second run does the rest. Four properties make that true:
//
//   - Writes are server-side applies of complete objects, so a repeated write changes nothing.
//   - Deletes name the UID of the object, and an object that is already gone counts as deleted.
//   - The checks of Join accept what an earlier, interrupted Join of the same cluster has left. The cluster is recognised by the
//     UID of its Namespace kube-system, which the Member holds.
//   - The first write and the last write are the ones that decide whether the cluster id is taken, and whether the cluster is a
//     member. Everything between them belongs to exactly one cluster.
package admin
