#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
Runs a command under a filter that answers a system call with an errno. usage: without.py NUMBER ERRNO COMMAND...
Status 77: filters are refused here.
"""
import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
RET_ERRNO, RET_ALLOW = 0x00050000, 0x7fff0000

number, err = int(sys.argv[1]), int(sys.argv[2])
program = b''.join(struct.pack('HBBI', *i) for i in (
    (LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, number), (RETURN, 0, 0, RET_ERRNO | err), (RETURN, 0, 0, RET_ALLOW)))
room = ctypes.create_string_buffer(program, len(program))


class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
argument = Program(4, ctypes.addressof(room))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(argument), 0, 0):
    print('filters of system calls are refused')
    sys.exit(77)
os.execvp(sys.argv[3], sys.argv[3:])
