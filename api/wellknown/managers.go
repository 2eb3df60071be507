package wellknown

// The field managers of the project. Each writer has its own, so that server-side apply removes the fields that this
// writer no longer sets and leaves those of the others.
const (
	// ManagerPrefix begins the name of every field manager below.
	ManagerPrefix = "clusterset-"

	// ManagerExporter writes Valid, Ready and their legacy names in the status of ServiceExports, and a member's objects
	// on the broker.
	ManagerExporter = ManagerPrefix + "exporter"
	// ManagerImporter writes imports, derived Services and imported slices, and Conflict in the status of ServiceExports.
	ManagerImporter = ManagerPrefix + "importer"
	// ManagerController writes, on the Lease of the election, why the controller has suspended operations.
	ManagerController = ManagerPrefix + "controller"
	// ManagerCredential renews the token in the Secret of the join.
	ManagerCredential = ManagerPrefix + "credential"
	// ManagerJoin applies the objects of "clusterset init", "join" and "remove".
	ManagerJoin = ManagerPrefix + "join"
	// ManagerExport applies the ServiceExports of "clusterset export".
	ManagerExport = ManagerPrefix + "export"
	// ManagerDNS writes the configuration of the cluster's DNS server.
	ManagerDNS = ManagerPrefix + "dns"
	// ManagerVerify creates what "clusterset verify" checks with.
	ManagerVerify = ManagerPrefix + "verify"
)
