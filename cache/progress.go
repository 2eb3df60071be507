package cache

// progress: the source of the objects of a watch, and whether a list is awaited (docs/spec/dns.md 6.2).
//
//	awaited       no objects; a list is awaited
//	absent        no objects; the kind is not installed
//	stuck         no objects; rights are missing, the credential is rejected, or answers can do without the kind
//	fromSnapshot  objects of a snapshot, until a list comes
//	listed        objects of a list
//	outdated      objects of a list from before a rollback or a reload; another list is awaited
//
// Nothing changes where the table has "–".
//
//	              requested  complete  loaded         rolledBack  missing   hopeless  otherCluster
//	awaited       –          listed    fromSnapshot   –           absent    stuck     –
//	absent        awaited¹   listed    fromSnapshot¹  awaited     –         stuck     awaited
//	stuck         awaited¹   listed    fromSnapshot   awaited     absent    –         awaited
//	fromSnapshot  –          listed    –              –           –²        –         awaited
//	listed        –          listed    –              outdated    –         –         awaited
//	outdated      –          listed    –              –           listed    listed    awaited
//
// ¹ "–" for a kind that answers can do without. ² absent for such a kind.
type progress uint8

const (
	awaited progress = iota
	absent
	stuck
	fromSnapshot
	listed
	outdated
	progresses
)

// An event moves a watch from progress to progress.
type event uint8

const (
	requested    event = iota // the API server accepted a request for a list
	complete                  // a list was complete
	loaded                    // a snapshot was read
	rolledBack                // the API server went back to an older state
	missing                   // the kind is not installed
	hopeless                  // a right is missing, the credential is rejected, or the list is not waited for any longer
	otherCluster              // another cluster answers, and is followed from now on
	events
)

// next is the transition function of [progress].
func (p progress) next(e event, needed bool) progress {
	switch e {
	case complete:
		return listed
	case otherCluster:
		return awaited
	case requested:
		if needed && !p.hasObjects() {
			return awaited
		}
	case loaded:
		if !p.hasObjects() && (needed || p != absent) {
			return fromSnapshot
		}
	case rolledBack:
		switch p {
		case listed, outdated:
			return outdated
		case absent, stuck:
			return awaited
		}
	case missing, hopeless:
		switch {
		case p == outdated:
			return listed
		case !p.hasObjects() && e == hopeless:
			return stuck
		case !p.hasObjects(), p == fromSnapshot && e == missing && !needed:
			return absent
		}
	}
	return p
}

// hasObjects reports whether there are objects to answer from.
func (p progress) hasObjects() bool { return p >= fromSnapshot }

// pending reports whether a list is awaited.
func (p progress) pending() bool { return p == awaited || p == outdated }
