package org.tidemark.verify;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.Arrays;
import java.util.Date;
import java.util.Objects;

/** POJO meant as a key, with a field of each type that has a hash code and that Flink knows in a POJO. hashCode = Objects.hash of the fields in order. */
public class WideKey {
    public boolean flag;
    public byte tiny;
    public short small;
    public int number;
    public long big;
    public float ratio;
    public double real;
    public char letter;
    public Boolean maybeFlag;
    public Byte maybeTiny;
    public Short maybeSmall;
    public Integer maybeNumber;
    public Long maybeBig;
    public Float maybeRatio;
    public Double maybeReal;
    public Character maybeLetter;
    public String text;
    public BigInteger bigInteger;
    public BigDecimal decimal;
    public Instant at;
    public Date date;
    public java.sql.Date sqlDate;
    public java.sql.Time sqlTime;
    public Timestamp sqlTimestamp;
    public Address address;

    public WideKey() {}

    private Object[] fields() {
        return new Object[] {
            flag, tiny, small, number, big, ratio, real, letter, maybeFlag, maybeTiny, maybeSmall, maybeNumber, maybeBig, maybeRatio, maybeReal,
            maybeLetter, text, bigInteger, decimal, at, date, sqlDate, sqlTime, sqlTimestamp, address
        };
    }

    @Override
    public int hashCode() {
        return Objects.hash(fields());
    }

    @Override
    public boolean equals(Object o) {
        return o instanceof WideKey && Arrays.equals(fields(), ((WideKey) o).fields());
    }
}
