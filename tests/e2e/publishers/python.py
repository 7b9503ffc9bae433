"""python.py zeroconf|hap NAME TYPE PORT KEY=VALUE: announces a service by python-zeroconf, or an accessory by HAP-python.

SIGUSR1 changes the TXT record of the former to version=2. An accessory has the type _hap._tcp whatever TYPE is.
"""
import signal
import sys


def own_address():
    import ifaddr

    return next(ip.ip for adapter in ifaddr.get_adapters() if adapter.name == "eth0" for ip in adapter.ips if ip.is_IPv4)


def announce(name, kind, port, txt):
    import socket
    from zeroconf import ServiceInfo, Zeroconf

    # The threads of Zeroconf inherit the mask, so that the signals wait for sigwait. A handler that sets an Event would
    # deadlock when the signal comes while this thread holds the lock of the Event.
    signals = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    zeroconf = Zeroconf()
    info = {
        "type_": f"{kind}.local.", "name": f"{name}.{kind}.local.", "port": port, "server": f"{socket.gethostname()}.local.",
        "parsed_addresses": [own_address()],
    }
    zeroconf.register_service(ServiceInfo(properties=txt, **info), allow_name_change=True)
    while signal.sigwait(signals) == signal.SIGUSR1:
        zeroconf.update_service(ServiceInfo(properties={"version": "2"}, **info))
    zeroconf.close()


def accessory(name, port):
    import tempfile
    from pyhap.accessory import Accessory
    from pyhap.accessory_driver import AccessoryDriver

    # The end of the MAC is a part of the name, which is to stay.
    state = tempfile.NamedTemporaryFile(suffix=".state")
    driver = AccessoryDriver(port=port, address=own_address(), persist_file=state.name + "-hap", mac="CC:B0:11:32:D6:FB")
    driver.add_accessory(Accessory(driver, name))
    signal.signal(signal.SIGTERM, driver.signal_handler)
    driver.start()


def main():
    library, name, kind, port, *txt = sys.argv[1:]
    if library == "hap":
        accessory(name, int(port))
    else:
        announce(name, kind, int(port), dict(pair.split("=", 1) for pair in txt))


main()
