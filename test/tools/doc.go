// Package tools holds the scripts of the Makefile; its tests run them. The programs of the Makefile are in folders
// below.
package tools
