package checkpoint

import "github.com/tidemark/tidemark/runtime/event"

// TaskState is how far a task is, as far as checkpoints are concerned.
type TaskState uint8

// States of tasks.
const (
	TaskCreated TaskState = iota // not running yet: no checkpoint is possible
	TaskRunning
	TaskFinished // its input ended and all it had to do is done
	TaskFailed   // or cancelled; waits for its next attempt
)

var taskStates = [...]string{"created", "running", "finished", "failed"}

func (s TaskState) String() string {
	if int(s) < len(taskStates) {
		return taskStates[s]
	}
	return "unknown"
}

// plan is who takes part in a checkpoint (Flink's CheckpointPlan).
type plan struct {
	trigger  []int // tasks to be triggered: those that no running task sends barriers to
	wait     []int // tasks whose acknowledgement is waited for, and who are notified
	finished []int // tasks that had finished before
}

// plan calculates who takes part now. ok is false while a task is not running,
// or all of them have finished; notRunning is such a task, or -1.
func (c *Core) plan() (p *plan, notRunning int, ok bool) {
	p = &plan{}
	for i := range c.tasks {
		switch c.tasks[i].state {
		case TaskRunning:
			p.wait = append(p.wait, i)
		case TaskFinished:
			p.finished = append(p.finished, i)
		default:
			return nil, i, false
		}
	}
	if len(p.wait) == 0 {
		return nil, -1, false
	}
	for v := range c.g.Vertices {
		first, end := c.g.first[v], c.g.first[v+1]
		for i := first; i < end; i++ {
			if c.tasks[i].state == TaskRunning && !c.hasRunningProducer(v, int32(i-first)) {
				p.trigger = append(p.trigger, i)
			}
		}
	}
	return p, -1, true
}

func (c *Core) hasRunningProducer(vertex int, subtask int32) bool {
	for _, in := range c.g.Vertices[vertex].Inputs {
		first, end := c.g.first[in.From], c.g.first[in.From+1]
		if in.Producers != nil {
			for _, s := range in.Producers(subtask) {
				if i := first + int(s); s >= 0 && i < end && c.tasks[i].state == TaskRunning {
					return true
				}
			}
			continue
		}
		for i := first; i < end; i++ {
			if c.tasks[i].state == TaskRunning {
				return true
			}
		}
	}
	return false
}

// attempt is the task with its current attempt.
func (c *Core) attempt(i int) event.Task {
	v, s := c.g.place(i)
	return event.Task{Vertex: c.g.Vertices[v].ID, Subtask: s, Attempt: c.tasks[i].attempt}
}
