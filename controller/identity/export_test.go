package identity

import "context"

// Refresh makes refresh available to tests of package identity_test.
func (r *Renewal) Refresh(ctx context.Context, due bool) error { return r.refresh(ctx, due) }

// ReadSecret makes readSecret available to tests of package identity_test.
func (r *Renewal) ReadSecret(ctx context.Context) { r.readSecret(ctx) }

// ReadFile makes readFile available to tests of package identity_test.
func (c *Credential) ReadFile() { c.readFile() }

// ToSave makes toSave available to tests of package identity_test.
func (c *Credential) ToSave() bool { return c.toSave() }

// Current returns the text of the current token.
func (c *Credential) Current() string { return c.current().text }

// IssuedBefore reports whether token a was issued before token b.
func IssuedBefore(a, b string) bool { return readToken(a).Issued.Before(readToken(b).Issued) }
