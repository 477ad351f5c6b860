import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.util.RandomData;

/**
 * Writes random records with Avro's own library, and what that reads of them with a reader's schema.
 *
 * <p>java -cp 'JARS OF PYSPARK/*' JavaRecords.java java_schemas.json java_records.json
 */
public class JavaRecords {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    ArrayNode cases = JSON.createArrayNode();
    for (JsonNode pair : JSON.readTree(Path.of(arguments[0]).toFile())) {
      Schema writer = new Schema.Parser().parse(pair.get("writer").toString());
      Schema reader = new Schema.Parser().parse(pair.get("reader").toString());
      ArrayNode records = cases.addArray();
      for (Object value : new RandomData(writer, 12, 7L)) {
        byte[] octets = written(writer, value);
        String read;
        try {
          Object resolved = new GenericDatumReader<>(writer, reader)
              .read(null, DecoderFactory.get().binaryDecoder(octets, null));
          read = HexFormat.of().formatHex(written(reader, resolved));
        } catch (AvroRuntimeException error) {
          read = null;
        }
        records.addArray().add(HexFormat.of().formatHex(octets)).add(read);
      }
    }
    JSON.writeValue(Path.of(arguments[1]).toFile(), cases);
  }

  private static byte[] written(Schema schema, Object value) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    BinaryEncoder encoder = EncoderFactory.get().blockingBinaryEncoder(out, null);
    new GenericDatumWriter<>(schema).write(value, encoder);
    encoder.flush();
    return out.toByteArray();
  }
}
