"""A device with a last will, until it is killed: publish_topic.py PORT."""
import sys

from paho.mqtt import client as mqtt

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
client.will_set("zigbee2mqtt/lamp/availability", '{"state":"offline"}', retain=True)
client.connect("127.0.0.1", int(sys.argv[1]))
client.publish("zigbee2mqtt/lamp/availability", '{"state":"online"}', retain=True)
client.loop_forever()
