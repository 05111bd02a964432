package vedette;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Spark's checkpoint files, without starting four programs a batch.
 *
 * Hadoop sets the rights of a new local file with the program chmod, of the file and of its checksum, where its own
 * library is missing, and pyspark has none. Two small files a batch take 25 ms so, and 2 ms here. The rest, the renaming
 * that makes a file appear whole or not at all, stays Spark's.
 */
public class LocalCheckpointFiles extends FileSystemBasedCheckpointFileManager {
    public LocalCheckpointFiles(Path path, Configuration configuration) {
        super(path, configuration);
    }

    public FSDataOutputStream createTempFile(Path path) {
        if (!(this.fs() instanceof LocalFileSystem)) {
            return super.createTempFile(path);
        }
        try {
            File file = ((LocalFileSystem) this.fs()).pathToFile(path);
            return new FSDataOutputStream(new BufferedOutputStream(new FileOutputStream(file)), null);
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }
}
