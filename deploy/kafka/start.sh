#!/bin/sh
# One KRaft node, broker and controller. Formats its volume at the first start.
set -eu

DATA=/var/lib/kafka/data
HERE=/opt/kafka/bin
java="$JAVA_HOME/bin/java"

if [ ! -f "$DATA/meta.properties" ]; then
    cluster=$(python3.11 -c 'import base64, uuid
print(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A"))')
    "$java" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$HERE/log4j2.properties" \
        -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format -t "$cluster" -c "$HERE/server.properties"
fi
exec "$java" "-Xmx${KAFKA_HEAP:-512m}" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir=/tmp \
    "-Dlog4j2.configurationFile=$HERE/log4j2.properties" -cp '/opt/kafka/libs/*' \
    kafka.Kafka "$HERE/server.properties" \
    --override "advertised.listeners=INTERNAL://kafka:9092,HOST://127.0.0.1:${KAFKA_HOST_PORT:-19092}"
