"""The judge's own file system for `file:`: Hadoop's, which starts a process (`chmod`, `ls -ld`) for each file
that it makes and for each one whose owner or mode it is asked for, where its native library is missing.

A compaction of a small table starts hundreds; nobody here asks for another mode than the umask's.
"""

from __future__ import annotations

from typing import Any, Final

# Compiled in the JVM by the compiler that Spark has there for the code of its queries.
_SOURCE: Final = """
import java.io.IOException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class WithoutProcesses extends LocalFileSystem {
    public WithoutProcesses() { super(new Raw()); }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) {}

        public FileStatus getFileStatus(Path path) throws IOException {
            return plain(super.getFileStatus(path));
        }

        public FileStatus[] listStatus(Path path) throws IOException {
            FileStatus[] found = super.listStatus(path);
            for (int i = 0; i < found.length; i++) found[i] = plain(found[i]);
            return found;
        }

        private static FileStatus plain(FileStatus of) {
            return new FileStatus(
                of.getLen(), of.isDirectory(), of.getReplication(), of.getBlockSize(),
                of.getModificationTime(), of.getAccessTime(), FsPermission.getFileDefault(), "", "",
                of.getPath()
            );
        }
    }
}
"""


def use_without_processes(spark: Any) -> None:
    """From now on all of the session's JVM reads and writes local files by it."""
    jvm = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    compiled = compiler.getClassLoader().loadClass("WithoutProcesses")
    # Else the first use of a file system would fill the map below once more.
    hadoop = jvm.org.apache.hadoop.fs.FileSystem
    hadoop.getFileSystemClass("file", spark.sparkContext._jsc.hadoopConfiguration())
    file_system = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
    by_scheme = file_system.getDeclaredField("SERVICE_FILE_SYSTEMS")
    by_scheme.setAccessible(True)
    by_scheme.get(None).put("file", compiled)
    # Those that are open are kept by their scheme.
    hadoop.closeAll()
