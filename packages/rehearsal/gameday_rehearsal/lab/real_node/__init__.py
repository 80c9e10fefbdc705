"""A real node in the lab: kubelet and containerd as published, in namespaces of their own on this machine.

`keeper` makes the namespaces and what is left of them, control groups, go with it; `inside` is their first process;
`enter` starts a program in them; `gateway` is the only way between their network and the machine's loopback.
"""
