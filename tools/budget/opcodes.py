"""Maps operations to pipes.

The numbers (an opcode's low nine bits) were found with PROBES: kernels of one PTX instruction, written many times,
whose machine code is counted. `tools/kernel_budget --probe` repeats it. The pipe of an operation is from NVIDIA:
"Throughput of Native Arithmetic Instructions" in the CUDA C++ Programming Guide.

Pipes: `alu` integers, comparisons, logic, moves, extremes of halves; `imad` integer products, on the half of the FP32
units that has multipliers for them; `fp32`; `half` packed 16-bit arithmetic; `fp64`; `convert` conversions that a
special unit does, and bit counts; `sfu` exponentials and the like; `memory` loads, stores, atomics and exchanges
between lanes; `uniform` once per warp; `control` branches and barriers. Every instruction also takes an issue slot.
"""

OPERATIONS = {
    0x002: ("MOV", "alu"), 0x003: ("P2R", "alu"), 0x004: ("R2P", "alu"), 0x005: ("CS2R", "alu"),
    0x006: ("VOTE", "alu"), 0x007: ("SEL", "alu"), 0x008: ("FSEL", "alu"), 0x009: ("FMNMX", "alu"),
    0x00a: ("FSET", "alu"), 0x00b: ("FSETP", "alu"), 0x00c: ("ISETP", "alu"), 0x00f: ("VIMNMX3", "alu"),
    0x010: ("IADD3", "alu"), 0x011: ("LEA", "alu"), 0x012: ("LOP3", "alu"), 0x013: ("IABS", "alu"),
    0x016: ("PRMT", "alu"), 0x017: ("IMNMX", "alu"), 0x019: ("SHF", "alu"), 0x01a: ("SGXT", "alu"),
    0x01b: ("BMSK", "alu"), 0x01c: ("PLOP3", "alu"), 0x01d: ("VABSDIFF", "alu"),
    0x020: ("FMUL", "fp32"), 0x021: ("FADD", "fp32"), 0x023: ("FFMA", "fp32"),
    0x024: ("IMAD", "imad"), 0x025: ("IMAD.WIDE", "imad"), 0x026: ("IDP", "imad"),
    0x027: ("IMAD.HI", "imad"),
    0x028: ("DMUL", "fp64"), 0x029: ("DADD", "fp64"), 0x02a: ("DSETP", "fp64"), 0x02b: ("DFMA", "fp64"),
    0x030: ("HADD2", "half"), 0x031: ("HFMA2", "half"), 0x032: ("HMUL2", "half"), 0x033: ("HSET2", "half"),
    0x034: ("HSETP2", "half"), 0x035: ("HFMA2.MMA", "half"), 0x036: ("VIADD", "alu"),
    0x03e: ("F2FP", "alu"), 0x040: ("HMNMX2", "alu"), 0x045: ("I2FP", "alu"), 0x046: ("VIADDMNMX", "alu"),
    0x047: ("VHMNMX", "alu"), 0x048: ("VIMNMX", "alu"), 0x049: ("VIMNMX3", "alu"), 0x076: ("FMNMX3", "alu"),
    0x03b: ("HMMA", "tensor"), 0x03c: ("HMMA", "tensor"),
    0x082: ("UMOV", "uniform"), 0x083: ("UP2UR", "uniform"), 0x086: ("VOTEU", "uniform"), 0x087: ("USEL", "uniform"),
    0x088: ("UFSEL", "uniform"), 0x08b: ("UFSETP", "uniform"),
    0x08c: ("UISETP", "uniform"), 0x08d: ("UISETP", "uniform"), 0x090: ("UIADD3", "uniform"), 0x091: ("ULEA", "uniform"),
    0x092: ("ULOP3", "uniform"), 0x096: ("UPRMT", "uniform"), 0x099: ("USHF", "uniform"), 0x09a: ("USGXT", "uniform"),
    0x09b: ("UBMSK", "uniform"), 0x09c: ("UPLOP3", "uniform"), 0x0a4: ("UIMAD", "uniform"), 0x0a5: ("UIMAD.WIDE", "uniform"),
    0x0b9: ("ULDC", "uniform"), 0x0bb: ("ULDC", "uniform"), 0x0bd: ("UFLO", "uniform"), 0x0bf: ("UPOPC", "uniform"), 0x0c2: ("S2UR", "uniform"), 
    0x0cc: ("CREDUX", "convert"), 0x1c4: ("REDUX", "convert"),     0x0ca: ("R2UR", "alu"), 0x1ac: ("LDCU", "uniform"), 0x1c2: ("R2UR", "alu"), 0x1c3: ("S2UR", "uniform"),
    0x100: ("FLO", "convert"), 0x101: ("BREV", "convert"), 0x102: ("FCHK", "convert"),
    0x104: ("F2F", "convert"), 0x105: ("F2I", "convert"), 0x106: ("I2F", "convert"), 0x107: ("FRND", "convert"),
    0x108: ("MUFU", "sfu"), 0x109: ("POPC", "convert"),
    0x110: ("F2F.64", "convert"), 0x111: ("F2I.64", "convert"), 0x112: ("I2F.64", "convert"), 0x113: ("FRND.64", "convert"),
    0x118: ("NOP", "control"), 0x119: ("S2R", "control"), 0x11b: ("ENDCOLLECTIVE", "control"), 0x11d: ("BAR", "control"),
    0x11a: ("DEPBAR", "control"), 0x192: ("MEMBAR", "control"), 0x1ab: ("ERRBAR", "control"), 0x1af: ("CCTL", "control"),
    0x141: ("BSYNC", "control"), 0x142: ("BREAK", "control"), 0x143: ("CALL", "control"), 0x144: ("CALL", "control"),
    0x155: ("BMOV", "control"), 0x156: ("BMOV", "control"),
    0x145: ("BSSY", "control"), 0x146: ("YIELD", "control"), 0x147: ("BRA", "control"), 0x148: ("WARPSYNC", "control"),
    0x149: ("BRX", "control"), 0x14d: ("EXIT", "control"), 0x150: ("RET", "control"),
    0x180: ("LD", "memory"), 0x181: ("LDG", "memory"), 0x182: ("LDC", "memory"), 0x183: ("LDL", "memory"),
    0x184: ("LDS", "memory"), 0x185: ("ST", "memory"), 0x186: ("STG", "memory"), 0x187: ("STL", "memory"),
    0x188: ("STS", "memory"), 0x189: ("SHFL", "memory"), 0x18a: ("ATOM", "memory"), 0x18b: ("ATOM", "memory"), 0x18c: ("ATOMS", "memory"),
    0x18d: ("ATOMS", "memory"), 0x18e: ("RED", "memory"), 0x18f: ("CCTL", "control"), 0x1a1: ("MATCH", "memory"), 0x1a8: ("ATOMG", "memory"), 0x1a9: ("ATOMG", "memory"), 0x1aa: ("QSPC", "memory"),
}
PIPES = ("alu", "imad", "fp32", "half", "fp64", "convert", "sfu", "memory", "uniform", "control",
         "tensor", "unknown")

# (name of the operation, PTX). %0 is read and written, %1 and %2 are read: r 32 bits, l 64, f f32, d f64, h 16 bits.
PROBES = (
    ("IADD3", "r", "add.u32 %0, %0, %1;"), ("LOP3", "r", "lop3.b32 %0, %0, %1, %2, 0x6a;"),
    ("SHF", "r", "shf.l.wrap.b32 %0, %0, %1, %2;"), ("PRMT", "r", "prmt.b32 %0, %0, %1, %2;"),
    ("IMAD", "r", "mad.lo.u32 %0, %0, %1, %2;"), ("IMAD.HI", "r", "mul.hi.u32 %0, %0, %1;"),
    ("IMAD.WIDE", "l", "{.reg .u32 a, b; mov.b64 {a, b}, %0; mad.wide.u32 %0, a, b, %1;}"),
    ("IMNMX|VIMNMX|VIMNMX3", "r", "max.u32 %0, %0, %1;"), ("POPC", "r", "popc.b32 %0, %0;"),
    ("FLO", "r", "bfind.u32 %0, %0;"), ("BREV", "r", "brev.b32 %0, %0;"),
    ("FADD", "f", "add.f32 %0, %0, %1;"), ("FMUL", "f", "mul.f32 %0, %0, %1;"),
    ("FFMA", "f", "fma.rn.f32 %0, %0, %1, %2;"), ("FMNMX|FMNMX3", "f", "max.f32 %0, %0, %1;"),
    ("FSETP|FSET", "f", "{.reg .pred p; setp.lt.f32 p, %0, %1; @p add.f32 %0, %0, %2;}"),
    ("ISETP", "r", "{.reg .pred p; setp.lt.u32 p, %0, %1; @p xor.b32 %0, %0, %2;}"),
    ("SEL", "r", "{.reg .pred p; setp.lt.u32 p, %0, %1; selp.u32 %0, %1, %2, p;}"),
    ("FSEL", "f", "{.reg .pred p; setp.lt.f32 p, %0, %1; selp.f32 %0, %1, %2, p;}"),
    ("DADD", "d", "add.f64 %0, %0, %1;"), ("DMUL", "d", "mul.f64 %0, %0, %1;"),
    ("DFMA", "d", "fma.rn.f64 %0, %0, %1, %2;"),
    ("MUFU", "f", "ex2.approx.ftz.f32 %0, %0;"),
    ("F2F.64", "d", "{.reg .f32 a; cvt.rn.f32.f64 a, %0; cvt.f64.f32 %0, a;}"),
    ("F2I|F2I.64", "f", "{.reg .s32 a; cvt.rni.s32.f32 a, %0; cvt.rn.f32.s32 %0, a;}"),
    ("I2F|I2FP", "f", "{.reg .s32 a; cvt.rni.s32.f32 a, %0; cvt.rn.f32.s32 %0, a;}"),
    ("I2F.64", "d", "{.reg .s32 a; cvt.rni.s32.f64 a, %0; cvt.rn.f64.s32 %0, a;}"),
    ("F2I.64", "d", "{.reg .s32 a; cvt.rni.s32.f64 a, %0; cvt.rn.f64.s32 %0, a;}"),
    ("HADD2|HFMA2|HFMA2.MMA", "r", "add.f16x2 %0, %0, %1;"), ("HMUL2|HFMA2|HFMA2.MMA", "r", "mul.f16x2 %0, %0, %1;"),
    ("HFMA2|HFMA2.MMA", "r", "fma.rn.f16x2 %0, %0, %1, %2;"), ("HMNMX2|VHMNMX", "r", "max.bf16x2 %0, %0, %1;"),
    ("F2FP", "r", "{.reg .f32 a; mov.b32 a, %0; cvt.rn.bf16x2.f32 %0, a, a;}"),
    ("SHFL", "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, -1;"),
    ("VOTE|VOTEU", "r", "{.reg .pred p; setp.ne.u32 p, %0, %1; vote.sync.ballot.b32 %0, p, -1;}"),
    ("REDUX|CREDUX", "r", "redux.sync.max.u32 %0, %0, -1;"),
    ("LDS", "r", "ld.shared.u32 %0, [%0];"), ("STS", "r", "st.volatile.shared.u32 [%0], %1;"),
    ("ATOMS", "r", "{.reg .u32 a; atom.shared.add.u32 %0, [%0], %1;}"),
    ("LDG", "l", "ld.global.u64 %0, [%0];"), ("STG", "l", "st.volatile.global.u64 [%0], %1;"),
    ("LD", "l", "ld.u64 %0, [%0];"), ("ST", "l", "st.volatile.u64 [%0], %1;"),
    ("RED", "l", "red.global.add.u64 [%0], %1;"), ("ATOM|ATOMG", "l", "atom.global.add.u64 %0, [%0], %1;"),
    ("BAR", "r", "bar.sync 0;"),
)
TIMES = 24
LEAST = TIMES // 2  # the compiler merges two of some instructions into one with three operands


def probe_source():
    """Returns one kernel per probe, with its instruction TIMES times."""
    types = {"r": "unsigned", "l": "unsigned long long", "f": "float", "d": "double"}
    out = []
    for i, (_, kind, text) in enumerate(PROBES):
        t = types[kind]
        line = f'asm volatile("{text}" : "+{kind}"(a) : "{kind}"(b), "{kind}"(c) : "memory");\n  '
        out.append(f'extern "C" __global__ void probe{i:02}({t}* p) {{\n'
                   f"  {t} a = p[threadIdx.x], b = p[threadIdx.x + 99], c = p[threadIdx.x + 77];\n"
                   f"  {line * TIMES}p[threadIdx.x] = a;\n}}\n")
    return "\n".join(out)


def probe_errors(kernels):
    """Returns [text]: differences between the probes' machine code and OPERATIONS."""
    found = {}
    for kernel in kernels:
        counts = {}
        for i in kernel.instructions:
            name = OPERATIONS.get(i.operation, (hex(i.operation),))[0]
            counts[name] = counts.get(name, 0) + 1
        found[kernel.name] = counts
    errors = []
    for i, (name, _, text) in enumerate(PROBES):
        counts = found[f"probe{i:02}"]
        if sum(counts.get(n, 0) for n in name.split("|")) < LEAST:
            others = {n: c for n, c in counts.items() if c >= TIMES // 2}
            errors.append(f"{name}: fewer than {LEAST} in {text!r}, which has {others}")
    return errors
