#!/bin/sh
# Starts one executor of Spark on Kubernetes with what the driver put into the pod's environment (Spark 3.5).
set -eu

case "${1:-}" in
    executor) ;;
    *)
        echo "use: executor.sh executor (called by Spark's driver on Kubernetes)" >&2
        exit 2
        ;;
esac

# The options come as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, … and become arguments one by one.
set --
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
done

exec "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
