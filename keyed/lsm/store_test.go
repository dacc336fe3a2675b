package lsm

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func TestOpenStore(t *testing.T) {
	db, err := openStore("db", vfs.NewMem())
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
