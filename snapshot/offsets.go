package snapshot

import (
	"context"
	"errors"

	"github.com/tidemark/tidemark/metadata"
)

// locate finds the offsets of the fields that findings are about. Only if there
// are any the metadata is read once more: the decoded form does not remember
// offsets.
func (v *verifier) locate(ctx context.Context) error {
	wanted := map[string][]*int64{}
	for i := range v.out.Findings {
		f := &v.out.Findings[i]
		switch {
		case f.Field == "":
		case f.File != v.file:
			f.HandleOffset = -1
			wanted[f.Field] = append(wanted[f.Field], &f.HandleOffset)
		case f.Offset < 0:
			wanted[f.Field] = append(wanted[f.Field], &f.Offset)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	fields := make([]string, 0, len(wanted))
	for field := range wanted {
		fields = append(fields, field)
	}
	store, name, err := v.s.pool.Resolve(ctx, v.s.Location)
	if err != nil {
		return err
	}
	r, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	found, err := metadata.Offsets(r, &metadata.DecodeOptions{Name: v.file, Size: v.s.Size}, fields...)
	if err != nil && !errors.Is(err, metadata.ErrCorrupt) {
		return err
	}
	for field, offset := range found {
		for _, to := range wanted[field] {
			*to = offset
		}
	}
	return nil
}
