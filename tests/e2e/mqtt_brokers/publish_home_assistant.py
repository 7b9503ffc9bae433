"""A device of ha-mqtt-discoverable: publish_home_assistant.py PORT. Each line of stdin is online, offline or gone."""
import sys

from ha_mqtt_discoverable import DeviceInfo, Settings
from ha_mqtt_discoverable.sensors import BinarySensor, BinarySensorInfo

device = DeviceInfo(name="Porch", identifiers="porch-1", manufacturer="Acme", model="P4")
entity = BinarySensorInfo(name="Motion", unique_id="porch-1-motion", device=device)
mqtt = Settings.MQTT(host="127.0.0.1", port=int(sys.argv[1]))
sensor = BinarySensor(Settings(mqtt=mqtt, entity=entity, manual_availability=True))
sensor.write_config()
for line in sys.stdin:
    match line.strip():
        case "gone":
            sensor.delete()
        case word:
            sensor.set_availability(word == "online")
