package snapshot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	places := []*place{nil, {id: 0}, {id: 1}}
	for _, room := range []int{0, 1, 100, 5000} {
		s := newFileSet(room)
		model := map[file]int64{}
		for i := range 20000 {
			f := file{places[rnd.IntN(len(places))], fmt.Sprint(rnd.IntN(3000))}
			facts, isNew := s.get(f)
			want, known := model[f]
			require.Equal(t, !known, isNew)
			if known {
				require.Equal(t, want, facts.size)
			}
			facts.size = int64(i)
			model[f] = int64(i)
		}
		require.Len(t, s.facts, len(model))
	}
}
