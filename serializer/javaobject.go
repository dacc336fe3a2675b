package serializer

func (d *Decoder) walkJava(t *Type, b []byte, i int, v Visitor) (int, error) {
	return d.opaqueHere(t, t.JavaClass, b, i, v)
}
