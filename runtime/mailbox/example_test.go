package mailbox_test

import (
	"context"
	"fmt"

	"github.com/tidemark/tidemark/runtime/mailbox"
)

// A task reads records until there is none, and then sleeps until a mail comes.
func Example() {
	m := mailbox.New()
	records := []string{"a", "b"}
	err := m.Run(context.Background(), func(c *mailbox.Controller) error {
		if len(records) == 0 {
			c.Suspend()
			go m.Put(mailbox.Mail{Name: "end", Run: func() error {
				fmt.Println("mail")
				c.Complete()
				return nil
			}})
			return nil
		}
		fmt.Println("record", records[0])
		records = records[1:]
		return nil
	})
	fmt.Println(err)
	// Output:
	// record a
	// record b
	// mail
	// <nil>
}
