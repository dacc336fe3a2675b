package matrix;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.WriteOptions;

/**
 * A database for benchmarks, with Flink's settings: keys as of a ValueState by
 * Long (key group, 8 bytes), written in random order, some of them twice, left to
 * automatic compaction.
 */
final class Bench {
    static void write(Path dir, long entries, int valueBytes) throws Exception {
        Files.createDirectories(dir.resolve("db"));
        ColumnFamilyOptions c = new ColumnFamilyOptions();
        c.setTableFormatConfig(new BlockBasedTableConfig());
        c.setMergeOperatorName("stringappendtest");
        DBOptions o = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
        List<ColumnFamilyHandle> families = new ArrayList<>();
        List<ColumnFamilyDescriptor> descriptors = List.of(
            new ColumnFamilyDescriptor("default".getBytes(StandardCharsets.UTF_8), c),
            new ColumnFamilyDescriptor("state".getBytes(StandardCharsets.UTF_8), c));
        Random random = new Random(1);
        byte[] value = new byte[valueBytes];
        try (RocksDB db = RocksDB.open(o, dir.resolve("db").toString(), descriptors, families); WriteOptions w = new WriteOptions().setDisableWAL(true)) {
            ByteBuffer key = ByteBuffer.allocate(9);
            for (long i = 0; i < entries + entries / 10; i++) {
                // A permutation of 0..entries-1 for an entries that is no multiple of the prime, then a tenth of it again.
                long k = (i * 2_147_483_647L) % entries;
                long h = k * 0x9E3779B97F4A7C15L;
                key.put(0, (byte) (h >>> 57));
                key.putLong(1, k);
                for (int j = 0; j < valueBytes; j++) {
                    // Half of it random, half of it not.
                    value[j] = j % 4 < 2 ? (byte) random.nextInt() : (byte) (j / 8);
                }
                db.put(families.get(1), w, key.array(), value);
            }
            try (FlushOptions f = new FlushOptions().setWaitForFlush(true)) {
                db.flush(f, families);
            }
            families.forEach(ColumnFamilyHandle::close);
        }
        try (Stream<Path> s = Files.list(dir.resolve("db"))) {
            s.filter(p -> !p.getFileName().toString().matches("CURRENT|MANIFEST-.*|OPTIONS-.*|.*\\.sst")).forEach(p -> p.toFile().delete());
        }
    }
}
