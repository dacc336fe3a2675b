package org.tidemark.verify;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.util.IteratorSourceEnumerator;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupStatePartitionStreamProvider;
import org.apache.flink.runtime.state.KeyedStateCheckpointOutputStream;
import org.apache.flink.runtime.state.OperatorStateCheckpointOutputStream;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StatePartitionStreamProvider;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

/** The functions of the pipeline. Each writes lines that do not depend on the order in which records come. */
final class PipelineFunctions {
    private PipelineFunctions() {}

    private static final AtomicLong READ = new AtomicLong();
    private static volatile long limit;

    /** Begins a run, which reads nothing yet. */
    static void start() {
        READ.set(0);
        limit = 0;
    }

    /** Lets the run read so many records and some more. */
    static void read(long most) {
        limit = most;
    }

    /** How many records came out of the source of this run. */
    static long read() {
        return READ.get();
    }

    /** Flink's sequence, but in so many splits: the enumerator has some left in its state. */
    static final class Numbers extends NumberSequenceSource {
        private static final long serialVersionUID = 1L;
        private final int splits;

        Numbers(long from, long to, int splits) {
            super(from, to);
            this.splits = splits;
        }

        @Override
        public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> createEnumerator(SplitEnumeratorContext<NumberSequenceSplit> c) {
            return new IteratorSourceEnumerator<>(c, splitNumberRange(getFrom(), getTo(), splits));
        }

        @Override
        public SourceReader<Long, NumberSequenceSplit> createReader(SourceReaderContext c) {
            return new Limited<>(super.createReader(c));
        }
    }

    /** A reader that has nothing more once the limit of the run is reached. */
    private static final class Limited<T, S extends SourceSplit> implements SourceReader<T, S> {
        private final SourceReader<T, S> of;

        Limited(SourceReader<T, S> of) {
            this.of = of;
        }

        @Override
        public InputStatus pollNext(ReaderOutput<T> out) throws Exception {
            return READ.get() < limit ? of.pollNext(out) : InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return READ.get() < limit
                    ? of.isAvailable()
                    : CompletableFuture.runAsync(() -> {}, CompletableFuture.delayedExecutor(5, TimeUnit.MILLISECONDS));
        }

        @Override
        public void start() {
            of.start();
        }

        @Override
        public List<S> snapshotState(long id) {
            return of.snapshotState(id);
        }

        @Override
        public void addSplits(List<S> splits) {
            of.addSplits(splits);
        }

        @Override
        public void notifyNoMoreSplits() {
            of.notifyNoMoreSplits();
        }

        @Override
        public void close() throws Exception {
            of.close();
        }
    }

    /** Turns each block of numbers around, and sleeps a millisecond after every so many. */
    static final class Scramble extends RichMapFunction<Long, Long> {
        private static final long serialVersionUID = 1L;
        private final int pace;
        private long n;

        Scramble(int pace) {
            this.pace = pace;
        }

        @Override
        public Long map(Long v) throws Exception {
            READ.incrementAndGet();
            if (pace > 0 && ++n % pace == 0) {
                Thread.sleep(1);
            }
            return v / Pipeline.DISORDER * Pipeline.DISORDER + Pipeline.DISORDER - 1 - v % Pipeline.DISORDER;
        }
    }

    static final class Rules extends RichMapFunction<Long, Long> {
        private static final long serialVersionUID = 1L;
        private final int sleep; // ms

        Rules(int sleep) {
            this.sleep = sleep;
        }

        @Override
        public Long map(Long v) throws Exception {
            Thread.sleep(sleep);
            return v;
        }
    }

    /**
     * Counts the records of a key, all of them and by parity (with a time to live). Counts those of each bucket of event time, and says so
     * at its end. For some early records it sets an alarm in processing time.
     */
    static final class Accounts extends KeyedProcessFunction<Long, Long, String> {
        private static final long serialVersionUID = 1L;
        private final long numbers;
        private final int slow; // ms for every record of key 0 and 1
        private transient ValueState<Long> count;
        private transient MapState<String, Long> parity;
        private transient MapState<Long, Long> buckets;
        private transient MapState<Long, Long> alarms;
        private transient ListState<Tuple2<Long, String>> first;

        Accounts(long numbers, int slow) {
            this.numbers = numbers;
            this.slow = slow;
        }

        @Override
        public void open(OpenContext c) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            MapStateDescriptor<String, Long> p = new MapStateDescriptor<>("parity", Types.STRING, Types.LONG);
            p.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofHours(1)).build());
            parity = getRuntimeContext().getMapState(p);
            buckets = getRuntimeContext().getMapState(new MapStateDescriptor<>("buckets", Types.LONG, Types.LONG));
            alarms = getRuntimeContext().getMapState(new MapStateDescriptor<>("alarms", Types.LONG, Types.LONG));
            first = getRuntimeContext().getListState(new ListStateDescriptor<>("pairs", Types.TUPLE(Types.LONG, Types.STRING)));
        }

        @Override
        public void processElement(Long v, Context c, Collector<String> out) throws Exception {
            long key = c.getCurrentKey();
            if (slow > 0 && key < 2) {
                Thread.sleep(slow);
            }
            long n = count.value() == null ? 1 : count.value() + 1;
            count.update(n);
            out.collect("count " + key + " " + n);
            String of = v / Pipeline.KEYS % 2 == 0 ? "even" : "odd";
            Long old = parity.get(of);
            parity.put(of, old == null ? 1 : old + 1);
            out.collect("parity " + key + " " + of + " " + parity.get(of));
            long end = (v / Pipeline.BUCKET + 1) * Pipeline.BUCKET;
            Long b = buckets.get(end);
            buckets.put(end, b == null ? 1 : b + 1);
            c.timerService().registerEventTimeTimer(end - 1);
            if (v < numbers / 4 && v / Pipeline.KEYS % 8 == 0) {
                long at = c.timerService().currentProcessingTime() + 250;
                while (alarms.contains(at)) {
                    at++;
                }
                alarms.put(at, v);
                c.timerService().registerProcessingTimeTimer(at);
            }
            if (v / Pipeline.KEYS % 64 == 0) {
                first.add(Tuple2.of(v, "of " + key));
            }
        }

        @Override
        public void onTimer(long at, OnTimerContext c, Collector<String> out) throws Exception {
            if (c.timeDomain() == TimeDomain.PROCESSING_TIME) {
                out.collect("alarm " + c.getCurrentKey() + " " + alarms.get(at));
                alarms.remove(at);
                return;
            }
            out.collect("bucket " + c.getCurrentKey() + " " + (at + 1) + " " + buckets.get(at + 1));
            buckets.remove(at + 1);
            if (at + 1 >= numbers) { // the last one has all there is in the list
                for (Tuple2<Long, String> p : first.get()) {
                    out.collect("pair " + c.getCurrentKey() + " " + p.f0 + " " + p.f1);
                }
            }
        }
    }

    static final class Sum implements ReduceFunction<Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long reduce(Long a, Long b) {
            return a + b;
        }
    }

    static final class Tumbled extends ProcessWindowFunction<Long, String, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long key, Context c, Iterable<Long> in, Collector<String> out) {
            out.collect("tumbling " + key + " " + c.window().getStart() + " " + in.iterator().next());
        }
    }

    static final class SumAndCount implements AggregateFunction<Long, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        private static final long serialVersionUID = 1L;

        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long v, Tuple2<Long, Long> a) {
            return Tuple2.of(a.f0 + v, a.f1 + 1);
        }

        @Override
        public Tuple2<Long, Long> getResult(Tuple2<Long, Long> a) {
            return a;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
        }
    }

    static final class Slid extends ProcessWindowFunction<Tuple2<Long, Long>, String, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long key, Context c, Iterable<Tuple2<Long, Long>> in, Collector<String> out) {
            Tuple2<Long, Long> a = in.iterator().next();
            out.collect("sliding " + key + " " + c.window().getStart() + " " + a.f0 + " " + a.f1);
        }
    }

    static final class Session extends ProcessWindowFunction<Long, String, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long key, Context c, Iterable<Long> in, Collector<String> out) {
            long n = 0;
            long sum = 0;
            for (long v : in) {
                n++;
                sum += v;
            }
            out.collect("session " + key + " " + c.window().getStart() + " " + c.window().getEnd() + " " + n + " " + sum);
        }
    }

    static final class Tens extends ProcessWindowFunction<Tuple2<Long, Long>, String, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long key, Context c, Iterable<Tuple2<Long, Long>> in, Collector<String> out) {
            out.collect("tens " + key + " " + c.window().getStart() + " " + in.iterator().next().f1);
        }
    }

    /** Gives each record the value of its rule; one whose rule has not come waits, with a timer that cannot fire before all rules are there. */
    static final class Matches extends KeyedBroadcastProcessFunction<Long, Long, Long, String> {
        private static final long serialVersionUID = 1L;
        static final MapStateDescriptor<String, Long> RULES = new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);
        private transient MapState<Long, String> waiting;

        @Override
        public void open(OpenContext c) {
            waiting = getRuntimeContext().getMapState(new MapStateDescriptor<>("waiting", Types.LONG, Types.STRING));
        }

        @Override
        public void processElement(Long v, ReadOnlyContext c, Collector<String> out) throws Exception {
            String rule = "rule " + v % Pipeline.RULES;
            Long value = c.getBroadcastState(RULES).get(rule);
            if (value != null) {
                out.collect("match " + v + " " + value);
                return;
            }
            waiting.put(v, rule);
            c.timerService().registerEventTimeTimer(v);
        }

        @Override
        public void processBroadcastElement(Long v, Context c, Collector<String> out) throws Exception {
            c.getBroadcastState(RULES).put("rule " + v, 1000 + v);
        }

        @Override
        public void onTimer(long at, OnTimerContext c, Collector<String> out) throws Exception {
            out.collect("match " + at + " " + c.getBroadcastState(RULES).get(waiting.get(at)));
            waiting.remove(at);
        }
    }

    /** Hands records on seven at a time (list state), and says at the end how many there were (union state). */
    static final class Seen extends AbstractStreamOperator<String> implements OneInputStreamOperator<Long, String>, BoundedOneInput {
        private static final long serialVersionUID = 1L;
        private transient ListState<Long> counts;
        private transient ListState<Long> held;
        private long n;
        private final List<Long> buffer = new ArrayList<>();

        @Override
        public void initializeState(StateInitializationContext c) throws Exception {
            super.initializeState(c);
            counts = c.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("counts", Types.LONG));
            held = c.getOperatorStateStore().getListState(new ListStateDescriptor<>("held", Types.LONG));
            if (getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 0) { // each subtask has all of them
                for (long x : counts.get()) {
                    n += x;
                }
            }
            for (long x : held.get()) {
                buffer.add(x);
            }
        }

        @Override
        public void processElement(StreamRecord<Long> r) {
            n++;
            buffer.add(r.getValue());
            if (buffer.size() >= 7) {
                pass();
            }
        }

        private void pass() {
            for (long x : buffer) {
                output.collect(new StreamRecord<>("pass " + x));
            }
            buffer.clear();
        }

        @Override
        public void snapshotState(StateSnapshotContext c) throws Exception {
            super.snapshotState(c);
            counts.update(List.of(n));
            held.update(buffer);
        }

        @Override
        public void endInput() {
            pass();
            output.collect(new StreamRecord<>("seen " + n));
        }
    }

    /**
     * Counts the records of a key in raw keyed state, and keeps some of them, each in a partition of raw operator state. The same count
     * stands in managed state beside it.
     */
    static final class Raw extends AbstractStreamOperator<String> implements OneInputStreamOperator<Long, String>, BoundedOneInput {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> managed;
        private transient TreeMap<Integer, TreeMap<Long, Long>> counts; // by key group
        private transient List<Long> marks;

        /** Or the raw keyed state would be taken for timers. */
        @Override
        protected boolean isUsingCustomRawKeyedState() {
            return true;
        }

        @Override
        public void initializeState(StateInitializationContext c) throws Exception {
            super.initializeState(c);
            managed = getPartitionedState(new ValueStateDescriptor<>("managed", Types.LONG));
            counts = new TreeMap<>();
            marks = new ArrayList<>();
            for (KeyGroupStatePartitionStreamProvider p : c.getRawKeyedStateInputs()) {
                int group = p.getKeyGroupId();
                DataInputStream d = piece(p.getStream());
                TreeMap<Long, Long> m = new TreeMap<>();
                if (counts.put(group, m) != null || d.readInt() != group || !groups().contains(group)) {
                    throw new IOException("these are not the bytes of key group " + group);
                }
                while (d.available() > 0) {
                    long key = d.readLong();
                    if (groupOf(key) != group || m.put(key, d.readLong()) != null) {
                        throw new IOException("key " + key + " in key group " + group);
                    }
                }
            }
            for (StatePartitionStreamProvider p : c.getRawOperatorStateInputs()) {
                marks.add(Long.parseLong(new String(piece(p.getStream()).readAllBytes(), StandardCharsets.UTF_8)));
            }
        }

        private KeyGroupRange groups() {
            TaskInfo t = getRuntimeContext().getTaskInfo();
            return KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(
                    t.getMaxNumberOfParallelSubtasks(), t.getNumberOfParallelSubtasks(), t.getIndexOfThisSubtask());
        }

        private int groupOf(long key) {
            return KeyGroupRangeAssignment.assignToKeyGroup(key, getRuntimeContext().getTaskInfo().getMaxNumberOfParallelSubtasks());
        }

        @Override
        public void processElement(StreamRecord<Long> r) throws Exception {
            long v = r.getValue();
            long key = (Long) getCurrentKey();
            long n = counts.computeIfAbsent(groupOf(key), g -> new TreeMap<>()).merge(key, 1L, Long::sum);
            long before = managed.value() == null ? 0 : managed.value();
            if (n != before + 1) {
                throw new IOException("key " + key + " was counted " + n + " times in raw state, " + (before + 1) + " in managed state");
            }
            managed.update(n);
            if (v % Pipeline.MARKS == 0) {
                marks.add(v);
            }
            output.collect(new StreamRecord<>("raw " + key + " " + n));
        }

        /** The groups from the last to the first; of those without keys every other one has bytes. */
        @Override
        public void snapshotState(StateSnapshotContext c) throws Exception {
            super.snapshotState(c);
            KeyedStateCheckpointOutputStream keyed = c.getRawKeyedOperatorStateOutput();
            KeyGroupRange groups = groups();
            for (int group = groups.getEndKeyGroup(); group >= groups.getStartKeyGroup(); group--) {
                Map<Long, Long> m = counts.getOrDefault(group, new TreeMap<>());
                if (m.isEmpty() && group % 2 == 1) {
                    continue;
                }
                ByteArrayOutputStream b = new ByteArrayOutputStream();
                DataOutputStream d = new DataOutputStream(b);
                d.writeInt(group);
                for (Map.Entry<Long, Long> e : m.entrySet()) {
                    d.writeLong(e.getKey());
                    d.writeLong(e.getValue());
                }
                keyed.startNewKeyGroup(group);
                writePiece(keyed, b.toByteArray());
            }
            OperatorStateCheckpointOutputStream partitions = c.getRawOperatorStateOutput();
            for (long v : marks) {
                partitions.startNewPartition();
                writePiece(partitions, Long.toString(v).getBytes(StandardCharsets.UTF_8));
            }
        }

        /** A stream does not tell where it ends: the length, the bytes, their checksum. */
        private static DataInputStream piece(InputStream in) throws IOException {
            DataInputStream d = new DataInputStream(in);
            byte[] b = new byte[d.readInt()];
            d.readFully(b);
            if (d.readInt() != checksum(b)) {
                throw new IOException("the checksum of " + b.length + " bytes of raw state is another one");
            }
            return new DataInputStream(new ByteArrayInputStream(b));
        }

        private static void writePiece(OutputStream out, byte[] b) throws IOException {
            DataOutputStream d = new DataOutputStream(out);
            d.writeInt(b.length);
            d.write(b);
            d.writeInt(checksum(b));
        }

        private static int checksum(byte[] b) {
            CRC32 c = new CRC32();
            c.update(b);
            return (int) c.getValue();
        }

        @Override
        public void endInput() {
            for (long v : marks) {
                output.collect(new StreamRecord<>("mark " + v));
            }
            marks.clear();
        }
    }

    /**
     * Writes lines to files of a folder, each file by one rename: a two-phase commit whose state is that of package runtime/stream. An element
     * of the list "committables" is a checkpoint's ID (long), the version of what follows (int), the file's name (UTF) and its content.
     */
    static final class Result extends AbstractStreamOperator<String> implements OneInputStreamOperator<String, String>, BoundedOneInput {
        private static final long serialVersionUID = 1L;
        private final String folder;
        private transient ListState<byte[]> state;
        private transient TreeMap<Long, byte[]> pending; // by checkpoint
        private transient StringBuilder lines;
        private transient String name;
        private int files;

        Result(String folder) {
            this.folder = folder;
        }

        @Override
        public void initializeState(StateInitializationContext c) throws Exception {
            super.initializeState(c);
            pending = new TreeMap<>();
            lines = new StringBuilder();
            name = UUID.randomUUID() + "-" + getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            state =
                    c.getOperatorStateStore()
                            .getListState(new ListStateDescriptor<>("committables", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            for (byte[] b : state.get()) {
                commit(b);
            }
        }

        @Override
        public void processElement(StreamRecord<String> r) {
            lines.append(r.getValue()).append('\n');
        }

        private byte[] seal(long checkpoint) throws IOException {
            ByteArrayOutputStream b = new ByteArrayOutputStream();
            DataOutputStream d = new DataOutputStream(b);
            d.writeLong(checkpoint);
            d.writeInt(1);
            d.writeUTF(name + "-" + files++);
            d.write(lines.toString().getBytes(StandardCharsets.UTF_8));
            lines.setLength(0);
            return b.toByteArray();
        }

        private void commit(byte[] b) throws IOException {
            DataInputStream d = new DataInputStream(new ByteArrayInputStream(b));
            d.readLong();
            if (d.readInt() != 1) {
                throw new IOException("a committable of another version");
            }
            String file = d.readUTF();
            Path to = Path.of(folder, file);
            Path from = Path.of(folder, "." + UUID.randomUUID());
            Files.write(from, d.readAllBytes());
            Files.move(from, to, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        }

        @Override
        public void snapshotState(StateSnapshotContext c) throws Exception {
            super.snapshotState(c);
            if (lines.length() > 0) {
                pending.put(c.getCheckpointId(), seal(c.getCheckpointId()));
            }
            state.update(new ArrayList<>(pending.values()));
        }

        @Override
        public void notifyCheckpointComplete(long id) throws Exception {
            super.notifyCheckpointComplete(id);
            Map<Long, byte[]> due = pending.headMap(id, true);
            for (byte[] b : due.values()) {
                commit(b);
            }
            due.clear();
        }

        @Override
        public void endInput() throws Exception {
            for (byte[] b : pending.values()) {
                commit(b);
            }
            pending.clear();
            if (lines.length() > 0) {
                commit(seal(0)); // no checkpoint will come
            }
        }
    }
}
