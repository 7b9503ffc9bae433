"""An edge node of pysparkplug with a device, until it is killed: publish_sparkplug.py PORT."""
import sys
import threading

import pysparkplug as sparkplug


def text(name, value):
    now = sparkplug.get_current_timestamp()
    return sparkplug.Metric(timestamp=now, name=name, datatype=sparkplug.DataType.STRING, value=value)


node = sparkplug.EdgeNode("plant", "gate", [text("Properties/Hardware Make", "Acme")])
node.register(sparkplug.Device("press", [text("Properties/Hardware Model", "P4")]))
node.connect("127.0.0.1", port=int(sys.argv[1]))
threading.Event().wait()
