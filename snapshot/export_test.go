package snapshot

// ChooseSample is the choice of a sample for tests.
func ChooseSample(s *Sample, object string, unit uint64) bool {
	choose := s.choose(object)
	return choose == nil || choose(unit)
}

// DecodeKeys makes a comparison decode all keys.
func DecodeKeys(o *DiffOptions) { o.whole = true }
