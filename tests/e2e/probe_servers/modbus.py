#!/usr/bin/env python3
"""A Modbus TCP server of pymodbus: modbus.py ADDRESS PORT VENDOR."""
import sys

from pymodbus import ModbusDeviceIdentification
from pymodbus.server import StartTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

address, port, vendor = sys.argv[1:4]
identity = ModbusDeviceIdentification(
    info_name={
        "VendorName": vendor,
        "ProductCode": "P4",
        "MajorMinorRevision": "1.7",
        "VendorUrl": "https://acme.example",
        "ProductName": "Press",
        "ModelName": "Press 4",
        "UserApplicationName": "x" * 200,
    }
)
device = SimDevice(id=1, simdata=[SimData(0, values=0, count=10, datatype=DataType.REGISTERS)])
StartTcpServer(device, identity=identity, address=(address, int(port)))
