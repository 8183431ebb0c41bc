import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Arrays;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyIn;
import org.postgresql.copy.CopyManager;
import org.postgresql.copy.CopyOut;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;

/** COPY, large values, cursors, large objects. */
final class TransferChecks {
  private static final int LARGE = 6 * 1024 * 1024;

  private TransferChecks() {}

  static void register() {
    Frame.check("copy_in_out", TransferChecks::copyInOut);
    Frame.check("copy_fails", TransferChecks::copyFails);
    Frame.check("large_values", TransferChecks::largeValues);
    Frame.check("fetch_size", TransferChecks::fetchSize);
    Frame.check("large_object", TransferChecks::largeObject);
  }

  private static CopyManager copies(Connection connection) throws Exception {
    return connection.unwrap(PGConnection.class).getCopyAPI();
  }

  private static void copyInOut() throws Exception {
    Connection connection = Frame.connect();
    Frame.exec(connection, "drop table if exists drv_pgjdbc_copy", "create table drv_pgjdbc_copy (id int, v text)");
    StringBuilder lines = new StringBuilder();
    for (int n = 0; n < 30000; n++) {
      lines.append(n).append("\trow ").append(n).append('\n');
    }
    Frame.same(30000L, copies(connection).copyIn("copy drv_pgjdbc_copy from stdin", new StringReader(lines.toString())));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    Frame.same(30000L, copies(connection).copyOut("copy (select * from drv_pgjdbc_copy order by id) to stdout", out));
    Frame.same(true, lines.toString().equals(out.toString(StandardCharsets.UTF_8)));
    connection.setAutoCommit(false);
    copies(connection).copyIn("copy drv_pgjdbc_copy from stdin", new StringReader("1\tx\n"));
    Frame.same("30001", Frame.value(connection, "select count(*) from drv_pgjdbc_copy"));
    connection.rollback();
    Frame.same("30000", Frame.value(connection, "select count(*) from drv_pgjdbc_copy"));
    connection.commit();
    connection.setAutoCommit(true);
    Frame.exec(connection, "drop table drv_pgjdbc_copy");
  }

  private static void copyFails() throws Exception {
    Connection connection = Frame.connect();
    Frame.exec(connection, "drop table if exists drv_pgjdbc_copy2", "create table drv_pgjdbc_copy2 (id int)");
    byte[] bad = "1\nno number\n".repeat(100000).getBytes(StandardCharsets.UTF_8);
    Frame.fails("22P02", () -> {
      try {
        copies(connection).copyIn("copy drv_pgjdbc_copy2 from stdin", new ByteArrayInputStream(bad));
      } catch (java.sql.SQLException e) {
        throw e;
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    });
    // The client gives up: CopyFail.
    CopyIn in = copies(connection).copyIn("copy drv_pgjdbc_copy2 from stdin");
    in.writeToCopy("1\n".getBytes(StandardCharsets.UTF_8), 0, 2);
    in.cancelCopy();
    InputStream broken = new InputStream() {
      @Override
      public int read() throws IOException {
        throw new IOException("gave up");
      }
    };
    try {
      copies(connection).copyIn("copy drv_pgjdbc_copy2 from stdin", broken);
      throw new AssertionError("no error");
    } catch (IOException e) {
      Frame.same("gave up", e.getMessage());
    }
    // The client no longer wants the rows: a cancel. CopyOut.cancelCopy leaves the error to the next statement.
    CopyOut out = copies(connection).copyOut("copy (select i from generate_series(1, 3000000) i) to stdout");
    out.readFromCopy();
    connection.unwrap(PGConnection.class).cancelQuery();
    Frame.fails("57014", () -> {
      while (out.readFromCopy() != null) {
        // Rows that were under way.
      }
    });
    Frame.same("0", Frame.value(connection, "select count(*) from drv_pgjdbc_copy2"));
    Frame.exec(connection, "drop table drv_pgjdbc_copy2");
  }

  private static void largeValues() throws Exception {
    Connection connection = Frame.connect("prepareThreshold=2");
    byte[] bytes = new byte[LARGE];
    for (int i = 0; i < LARGE; i++) {
      bytes[i] = (byte) (i * 7 + (i >> 12));
    }
    String words = "abcdefghijklm".repeat(LARGE / 13);
    try (PreparedStatement statement = connection.prepareStatement("select ?::bytea, ?::text")) {
      for (int turn = 0; turn < 3; turn++) {
        statement.setBytes(1, bytes);
        statement.setString(2, words);
        try (ResultSet rows = statement.executeQuery()) {
          rows.next();
          Frame.same(true, Arrays.equals(bytes, rows.getBytes(1)));
          Frame.same(true, words.equals(rows.getString(2)));
        }
      }
    }
    Frame.same(String.valueOf(words.length()), Frame.value(connection, "select length('" + words + "')"));
  }

  private static void fetchSize() throws Exception {
    // A named portal with a row limit; between its parts other statements run on the same connection.
    Connection connection = Frame.connect("prepareThreshold=1");
    connection.setAutoCommit(false);
    for (int turn = 0; turn < 3; turn++) {
      try (PreparedStatement statement = connection.prepareStatement("select i from generate_series(1, ?) i")) {
        statement.setFetchSize(90);
        statement.setInt(1, 1000);
        long sum = 0;
        try (ResultSet rows = statement.executeQuery()) {
          while (rows.next()) {
            sum += rows.getInt(1);
            if (rows.getInt(1) % 250 == 0) {
              Frame.same("7", Frame.value(connection, "select ?::int", 7));
            }
          }
        }
        Frame.same(500500L, sum);
        statement.setMaxRows(10);
        try (ResultSet rows = statement.executeQuery()) {
          int count = 0;
          while (rows.next()) {
            count++;
          }
          Frame.same(10, count);
        }
      }
      connection.commit();
    }
    // A cursor that the application names.
    try (Statement statement = connection.createStatement()) {
      statement.execute("declare drv_cursor cursor for select i from generate_series(1, 100) i");
      try (ResultSet rows = statement.executeQuery("fetch 5 from drv_cursor")) {
        int count = 0;
        while (rows.next()) {
          count++;
        }
        Frame.same(5, count);
      }
    }
    connection.commit();
  }

  private static void largeObject() throws Exception {
    Connection connection = Frame.connect();
    connection.setAutoCommit(false);
    LargeObjectManager objects = connection.unwrap(PGConnection.class).getLargeObjectAPI();
    byte[] bytes = new byte[200_000];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) (i * 31);
    }
    long id = objects.createLO();
    try (LargeObject object = objects.open(id, LargeObjectManager.READWRITE)) {
      object.write(bytes);
      object.seek(0);
      Frame.same(true, Arrays.equals(bytes, object.read(bytes.length)));
    }
    objects.delete(id);
    connection.commit();
  }
}
