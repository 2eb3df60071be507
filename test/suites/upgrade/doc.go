// Package upgrade tests members of two versions on one broker: the programs of the previous release, built from the commit that
// docs/upgrading.md names, beside those of this checkout. Its test has the tag "upgrade", because it compiles that release.
package upgrade
