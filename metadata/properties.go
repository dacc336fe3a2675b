package metadata

// NullProperties is what Java writes for properties that are not there, as the
// State Processor API does.
func NullProperties() RawProperties { return RawProperties{0xac, 0xed, 0x00, 0x05, 0x70} }
