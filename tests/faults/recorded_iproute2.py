"""What iproute2 6.1 printed on Linux 6.18 for a veth pair; netem's form as iproute2's own q_netem.c writes it."""

from __future__ import annotations

NOQUEUE = '[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]\n'
TBF = (
    '[{"kind":"tbf","handle":"6ada:","root":true,"refcnt":3,'
    '"options":{"rate":125000000,"burst":1048500,"lat":50000}}]\n'
)
NETEM = (
    '[{"kind":"netem","handle":"6ada:","root":true,"refcnt":2,"options":{"limit":1000,'
    '"delay":{"delay":0.05,"jitter":0.01,"correlation":0},"loss-random":{"loss":0.01,"correlation":0},'
    '"ecn":false,"gap":0}}]\n'
)
LINK_UP = (
    '[{"ifindex":3,"link":"ib0p","ifname":"ib0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,'
    '"qdisc":"noqueue","operstate":"UP","linkmode":"DEFAULT","group":"default","txqlen":1000,"link_type":"ether",'
    '"address":"aa:ee:67:52:27:4e","broadcast":"ff:ff:ff:ff:ff:ff"}]\n'
)
NO_SUCH_LINK = 'Device "nope" does not exist.\n'
"""The text on standard error; the exit status is 1."""
NO_MEMBERS = "[{}]\n"
"""`ip -j link show master X` where X has none, as iproute2 before 6.2 prints it."""
CONNECTIONS = """0      0              10.0.0.5:51022       10.0.0.1:6443 users:(("kubelet",pid=1423,fd=12))
0      0              10.0.0.5:51023       10.9.9.9:443  users:(("curl",pid=99,fd=3))
0      0             127.0.0.1:10248      127.0.0.1:49152 users:(("kubelet",pid=1423,fd=15))
0      0      [::ffff:10.0.0.5]:10250 [::ffff:10.0.0.7]:38322 users:(("kubelet",pid=1423,fd=20))
"""
