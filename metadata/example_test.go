package metadata_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/tidemark/tidemark/metadata"
)

const example = "../testdata/goldens/f230-unaligned/checkpoint/99ef8cdf1cff7ba4dd5947afb49e3faa/chk-2/_metadata"

func open(name string) *metadata.Checkpoint {
	f, err := os.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	c, err := metadata.Decode(f, &metadata.DecodeOptions{Name: "chk-2/_metadata"})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Read a checkpoint and say what is in it.
func ExampleDecode() {
	c := open(example)
	p := c.Properties.Decode()
	fmt.Printf("%s %d, version %d, %s\n", p.Kind, c.ID, c.Version, p.Retention())
	for i := range c.Operators {
		o := &c.Operators[i]
		fmt.Printf("%s %q: parallelism %d of %d\n", o.ID, o.UID, o.Parallelism, o.MaxParallelism)
	}
	// Output:
	// checkpoint 2, version 6, retained on cancellation
	// 0c80f7e50ab54b30f6a2580946f9e942 "events": parallelism 2 of 128
	// a3bb7b6beeaa6046a5688cd3cb836817 "uid.slow": parallelism 2 of 128
	// 25e86cd84b165ace9723b24b1d08394d "uid.slow.sink": parallelism 2 of 128
	// dc9c39badfcd2b45c2871897dab5a995 "uid.pass": parallelism 2 of 128
}

// Add up the bytes of each kind of state.
func ExampleCheckpoint_StreamHandles() {
	c := open(example)
	sizes := map[metadata.Slot]int64{}
	for place, handle := range c.StreamHandles() {
		sizes[place.Slot] += metadata.StateSize(handle)
		if place.Slot == metadata.SlotInputChannel {
			fmt.Println(c.Field(place))
		}
	}
	fmt.Println("managed operator state:", sizes[metadata.SlotManagedOperator], "bytes")
	// Output:
	// operator[1].subtask[0].inputChannel[0].delegate
	// operator[1].subtask[1].inputChannel[0].delegate
	// operator[3].subtask[0].inputChannel[0].delegate
	// operator[3].subtask[1].inputChannel[0].delegate
	// managed operator state: 542 bytes
}

// Write a checkpoint of Flink 2.3 for a Flink 1.20: what would be lost is named,
// and dropped only if that is allowed.
func ExampleConvert() {
	c := open(example)
	_, err := metadata.Convert(c, 4, nil)
	var lost *metadata.NotRepresentableError
	if errors.As(err, &lost) {
		fmt.Println(lost.Problems[0])
	}
	older, err := metadata.Convert(c, 4, &metadata.ConvertOptions{DropNames: true})
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	err = metadata.EncodeWith(&out, older, &metadata.EncodeOptions{Release: "1.20", SelfCheck: true})
	fmt.Println(out.Len() > 0, err)
	// Output:
	// operator[0].name: operator names ("Source: event source") need version 5
	// true <nil>
}

// Show bytes and meaning, and where the damage is.
func ExampleDump() {
	b, err := os.ReadFile(example)
	if err != nil {
		log.Fatal(err)
	}
	b[16] = 0x7f // a count far too large
	err = metadata.Dump(os.Stdout, bytes.NewReader(b), &metadata.DumpOptions{Name: "chk-2/_metadata"})
	fmt.Println("error:", err)
	// Output:
	// 0000-0003: 4960672d                          # magic
	// 0004-0007: 00000006                          # format version 6
	// 0008-0015: 0000000000000002                  # checkpoint ID 2
	// 0016-0019: 7f000000                          # masterStateCount 2130706432
	// # damaged: chk-2/_metadata: byte 16: masterStateCount is 2130706432, but 3667 bytes are left: corrupt
	// error: chk-2/_metadata: byte 16: masterStateCount is 2130706432, but 3667 bytes are left: corrupt
}

func ExampleOperatorIDFromUID() {
	fmt.Println(metadata.OperatorIDFromUID("events"))
	names, err := metadata.NewUIDNames([]string{"events", "counters"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(names.Label(&metadata.OperatorState{ID: metadata.OperatorIDFromUID("counters")}))
	// Output:
	// 0c80f7e50ab54b30f6a2580946f9e942
	// counters
}
