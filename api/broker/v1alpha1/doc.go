// Package v1alpha1 holds version v1alpha1 of the API group broker.clusterset-dns.io: what the members of a clusterset
// write to their broker, and what an admin writes there for them.
//
// Every object has one writer, so no two writers race for it. What all members make of the objects together is
// computed, in each of them alike; it is stored nowhere.
//
// +kubebuilder:object:generate=true
// +groupName=broker.clusterset-dns.io
package v1alpha1
