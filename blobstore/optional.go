package blobstore

// A decorator implements every optional interface, each by a type assertion on the
// store inside it, and goes through withOptional, which leaves of them only those
// that the inner store has. So a caller's own assertion tells the truth through
// any number of decorators.

// decorator is what each decorator's own type implements.
type decorator interface {
	Store
	Subber
	TemporaryLister
	DirectoryRemover
}

// core is a decorator without its optional interfaces.
type core interface {
	Store
	Subber
}

func withOptional(d decorator, inner Store) Store {
	_, temp := inner.(TemporaryLister)
	_, dirs := inner.(DirectoryRemover)
	switch {
	case temp && dirs:
		return d
	case temp:
		return struct {
			core
			TemporaryLister
		}{d, d}
	case dirs:
		return struct {
			core
			DirectoryRemover
		}{d, d}
	default:
		return struct{ core }{d}
	}
}
