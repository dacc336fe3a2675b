package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
)

// compact is JSON without white space; ok is false for what is no JSON.
func compact(s string) (string, bool) {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		return "", false
	}
	return b.String(), true
}

// unquoteJSON is the text of a JSON string.
func unquoteJSON(s string) (string, bool) {
	var t string
	if err := json.Unmarshal([]byte(s), &t); err != nil {
		return "", false
	}
	return t, true
}

func dirOf(name string) string { return filepath.Dir(name) }
