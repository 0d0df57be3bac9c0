#!/bin/sh
# Spark standalone: `start.sh master` or `start.sh worker`. All that Spark writes lies in /var/lib/spark.
set -eu

HERE=/opt/spark/bin
HOME_DIR=/var/lib/spark
export SPARK_CONF_DIR="$HERE"
# PySpark's distribution lacks the file that tells it.
export SPARK_SCALA_VERSION=2.12

run() { # heap, class and arguments
    heap="$1"
    shift
    # shellcheck disable=SC2086  # options are several words
    exec "$JAVA_HOME/bin/java" "-Xmx$heap" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError \
        -Djava.io.tmpdir=/tmp -Duser.timezone=UTC "-Dlog4j2.configurationFile=$HERE/log4j2.properties" \
        $OPENED "$@"
}

# What Spark's launcher gives to every JVM of Java 17 (JavaModuleOptions).
OPENED="-XX:+IgnoreUnrecognizedVMOptions"
for package in java.base/java.lang java.base/java.lang.invoke java.base/java.lang.reflect java.base/java.io \
    java.base/java.net java.base/java.nio java.base/java.util java.base/java.util.concurrent \
    java.base/java.util.concurrent.atomic java.base/jdk.internal.ref java.base/sun.nio.ch \
    java.base/sun.nio.cs java.base/sun.security.action java.base/sun.util.calendar; do
    OPENED="$OPENED --add-opens=$package=ALL-UNNAMED"
done

case "${1:-}" in
    master)
        mkdir -p "$HOME_DIR/recovery"
        # A master that comes back knows its workers and the writer again.
        run 256m -cp "$HERE:$SPARK_HOME/jars/*" \
            -Dspark.deploy.recoveryMode=FILESYSTEM "-Dspark.deploy.recoveryDirectory=$HOME_DIR/recovery" \
            org.apache.spark.deploy.master.Master --host "$(hostname)" --port 7077 --webui-port 8080
        ;;
    worker)
        # Executors ended with the former container: what they left is of no use to anybody.
        rm -rf "$HOME_DIR/work" "$HOME_DIR/local"
        mkdir -p "$HOME_DIR/work" "$HOME_DIR/local"
        export SPARK_LOCAL_DIRS="$HOME_DIR/local"
        run 256m -cp "$HERE:$SPARK_HOME/jars/*" \
            -Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.interval=600 \
            -Dspark.worker.cleanup.appDataTtl=3600 \
            org.apache.spark.deploy.worker.Worker --host "$(hostname)" --port 7078 --webui-port 8081 \
            --cores "${SPARK_WORKER_CORES:-1}" --memory "${SPARK_WORKER_MEMORY:-512m}" \
            --work-dir "$HOME_DIR/work" "${SPARK_MASTER_URL:-spark://spark-master:7077}"
        ;;
    *)
        echo "use: start.sh master | worker" >&2
        exit 2
        ;;
esac
