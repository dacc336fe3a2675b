// Package plaintype tells of which Go types == is equality of what a serializer writes.
package plaintype

import "reflect"

// Is tells whether two values of a type are == exactly if they are serialized to the same
// bytes. Floats, times, pointers and interfaces are not plain, nor is a struct with a field
// that is not written.
func Is(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.String:
		return true
	case reflect.Array:
		return Is(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); !Is(f.Type) || f.Tag.Get("flink") == "-" || !f.IsExported() && f.Type.Size() > 0 {
				return false
			}
		}
		return true
	}
	return false
}

// Padded tells whether values of a type have bytes that belong to no field: what is in
// them differs among values that are equal.
func Padded(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return Padded(t.Elem())
	case reflect.Struct:
		fields := uintptr(0)
		for i := range t.NumField() {
			f := t.Field(i).Type
			if Padded(f) {
				return true
			}
			fields += f.Size()
		}
		return fields != t.Size()
	}
	return false
}
