// Package statuspage serves the status page of one instance of the controller (docs/spec/operations.md 8).
//
//	the controller --Say--> Board --Status--> Server --HTTP--> a browser or a program
//	                          |                 |
//	                the parts of a term    package page renders
package statuspage
