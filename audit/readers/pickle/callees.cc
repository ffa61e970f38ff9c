#include "audit/readers/pickle/callees.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace plumbline::audit {
namespace {

constexpr int kMostNested = 8;  // limit of nested classes

// Python's standard library, Python 2's, and packages that load or store code. Each name is between
// spaces.
constexpr std::string_view kRunners =
    " IPython __future__ _abc _ast _asyncio _bisect _blake2 _bz2 _codecs _collections "
    "_collections_abc _compat_pickle _compression _contextvars _crypt _csv _ctypes _curses "
    "_datetime _dbm _decimal _elementtree _frozen_importlib _frozen_importlib_external _functools "
    "_gdbm _hashlib _heapq _imp _io _json _locale _lsprof _lzma _multiprocessing _opcode _operator "
    "_osx_support _overlapped _pickle _posixshmem _posixsubprocess _pyio _queue _random _signal "
    "_sitebuiltins _socket _sqlite3 _sre _ssl _stat _string _struct _symtable _thread "
    "_threading_local _tkinter _typing _uuid _warnings _weakref _weakrefset _winapi _winreg "
    "_zoneinfo abc aifc argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb "
    "binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cloudpickle cmath cmd code "
    "codecs codeop collections colorsys commands compileall concurrent configparser contextlib "
    "contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib "
    "dill dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp "
    "fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob "
    "graphlib grp gzip hashlib heapq hmac html http imaplib imghdr imp importlib inspect io "
    "ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox mailcap "
    "marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt "
    "ntpath nturl2path numbers opcode operator optparse os os2 ossaudiodev pathlib pdb pickle "
    "pickletools pip pipes pkg_resources pkgutil platform plistlib popen2 poplib posix posixpath "
    "pprint profile pstats pty pwd py_compile pyclbr pydoc pyexpat queue quopri random re readline "
    "reprlib resource rlcompleter runpy sched secrets select selectors setuptools shelve shlex "
    "shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile "
    "sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau "
    "symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap threading "
    "time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle types "
    "typing unicodedata unittest urllib urllib2 uu uuid venv warnings wave weakref webbrowser "
    "winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo ";

// Modules through which a name may reach a function with side effects ("x.y.os.system").
constexpr std::string_view kWays =
    " os sys subprocess posix nt builtins __builtin__ importlib shutil runpy socket pty ctypes "
    "pickle marshal ";

// Types of Python's standard library whose objects are data.
constexpr std::string_view kPlain[] = {"argparse.Namespace",
                                       "types.SimpleNamespace",
                                       "_io.BytesIO",
                                       "io.BytesIO",
                                       "_io.StringIO",
                                       "io.StringIO",
                                       "builtins.complex",
                                       "builtins.slice",
                                       "builtins.range",
                                       "builtins.xrange",
                                       "builtins.object",
                                       "builtins.list",
                                       "builtins.tuple",
                                       "builtins.dict",
                                       "builtins.set",
                                       "builtins.frozenset",
                                       "builtins.str",
                                       "builtins.int",
                                       "builtins.float",
                                       "builtins.bool",
                                       "builtins.bytes",
                                       "builtins.bytearray",
                                       "decimal.Decimal",
                                       "_decimal.Decimal",
                                       "fractions.Fraction",
                                       "uuid.UUID",
                                       "random.Random",
                                       "random.SystemRandom",
                                       "_random.Random",
                                       "array.array",
                                       "array._array_reconstructor",
                                       "re._compile",
                                       "logging.getLogger",
                                       "zoneinfo.ZoneInfo._unpickle",
                                       "_codecs.encode",
                                       "operator.itemgetter",
                                       "operator.or_",
                                       "_operator.or_",
                                       "string.Template",
                                       "time.struct_time",
                                       "typing._GenericAlias",
                                       "types.GenericAlias",
                                       "os.stat_result",
                                       "os.terminal_size"};
// Modules whose types are all data.
constexpr std::string_view kPlainModules[] = {
    "collections.", "pathlib.", "datetime.", "_datetime.", "enum.", "ipaddress.", "itertools."};

// Parts of torch and numpy that run code, or load a file or a nested pickle.
constexpr std::string_view kActing[] = {"torch.hub.",
                                        "torch.serialization.",
                                        "torch.storage.",
                                        "torch.package.",
                                        "torch.jit.",
                                        "torch.fx.",
                                        "torch.utils.cpp_extension.",
                                        "torch.utils.data.datapipes.",
                                        "torch.distributed.rpc.",
                                        "torch.distributed.elastic.",
                                        "torch.distributed.launcher.",
                                        "torch._dynamo.",
                                        "torch._inductor.",
                                        "torch.testing.",
                                        "torch.multiprocessing.",
                                        "torch.classes.",
                                        "torch.ops.",
                                        "numpy.testing.",
                                        "numpy.f2py.",
                                        "numpy.distutils.",
                                        "numpy.lib.",
                                        "numpy.ctypeslib."};

bool InList(std::string_view list, std::string_view word) {
  const std::string padded = " " + std::string(word) + " ";
  return list.find(padded) != std::string_view::npos;
}

template <typename List>
bool StartsWithAny(std::string_view name, const List& list) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// Returns true for names written like classes: "Linear", "_Cache".
bool LooksLikeClass(std::string_view part) {
  const size_t at = part.find_first_not_of('_');
  return at != std::string_view::npos && part[at] >= 'A' && part[at] <= 'Z';
}

bool IsError(std::string_view part) {
  return part.ends_with("Error") || part.ends_with("Exception") || part.ends_with("Warning");
}

// Returns true if a part of the name, other than the first, is a module with side effects.
bool LeadsOn(std::string_view name) {
  if (name.starts_with("numpy.random._pickle.")) return false;
  for (size_t dot = name.find('.'); dot != std::string_view::npos;) {
    const size_t next = name.find('.', dot + 1);
    std::string_view part = name.substr(dot + 1, next - dot - 1);
    part.remove_prefix(std::min(part.find_first_not_of('_'), part.size()));
    if (InList(kWays, part)) return true;
    dot = next;
  }
  return false;
}

// Returns true for classes of torch and numpy, and the functions that build their values.
bool IsValueOfLibrary(std::string_view name) {
  if (StartsWithAny(name, kActing)) return false;
  const std::string_view last = LastPart(name);
  if (LooksLikeClass(last) || last.starts_with("_rebuild_") || last.ends_with("_ctor") ||
      last.starts_with("__pyx_unpickle_"))
    return true;
  constexpr std::string_view kBuilders[] = {"_mareconstruct", "_frombuffer", "ndarray", "dtype",
                                            "recarray",       "matrix",      "record",  "device"};
  return std::find(std::begin(kBuilders), std::end(kBuilders), last) != std::end(kBuilders);
}

// Returns the object and the name in a call of getattr. For any other call, returns nothing.
std::optional<std::pair<PickleId, std::string_view>> Attribute(const PickleTree& tree,
                                                               PickleId call) {
  if (tree.callee(call) != "builtins.getattr") return std::nullopt;
  const std::vector<PickleId>& items = tree.items(tree.call(call).arguments);
  if (items.size() != 2 || !tree.Is(items[1], PickleKind::kText)) return std::nullopt;
  return std::pair(items[0], tree.text(items[1]));
}

// Returns the name of a global or of a nested class; "" for any other value.
std::string NameOfClass(const PickleTree& tree, PickleId id, int depth) {
  if (tree.Is(id, PickleKind::kGlobal)) return std::string(tree.text(id));
  const auto attribute = Attribute(tree, id);
  if (!attribute || depth == kMostNested) return "";
  const std::string outer = NameOfClass(tree, attribute->first, depth + 1);
  return outer.empty() ? "" : outer + "." + std::string(attribute->second);
}

bool BuildsDataWithin(const PickleTree& tree, PickleId call, int depth);

// Returns true for a member of a class (an enum's, a static method) or a bound method of an object
// that is data, as OneCycleLR has one. Names that begin with two underscores are refused: they lead
// to Python's internals.
bool IsAttributeOfData(const PickleTree& tree, PickleId object, std::string_view name, int depth) {
  if (name.starts_with("__") || depth == kMostNested) return false;
  if (tree.Is(object, PickleKind::kCircle)) object = tree.circle(object).call;
  if (tree.Is(object, PickleKind::kGlobal))
    return NamesData(tree.text(object)) && LooksLikeClass(LastPart(tree.text(object)));
  return tree.Is(object, PickleKind::kCall) && BuildsDataWithin(tree, object, depth + 1);
}

bool BuildsDataWithin(const PickleTree& tree, PickleId call, int depth) {
  if (const auto attribute = Attribute(tree, call))
    return IsAttributeOfData(tree, attribute->first, attribute->second, depth);
  // A partial function is judged like its function.
  if (tree.callee(call) == "functools.partial") {
    const std::vector<PickleId>& items = tree.items(tree.call(call).arguments);
    return !items.empty() && NamesData(NameOfClass(tree, items[0], 0));
  }
  if (tree.Is(tree.call(call).callee, PickleKind::kGlobal)) return NamesData(tree.callee(call));
  // A nested class. The result of a call may have any name, so it is refused.
  const std::string name = NameOfClass(tree, tree.call(call).callee, 0);
  return !name.empty() && LooksLikeClass(LastPart(name)) &&
         BuildsDataWithin(tree, tree.call(call).callee, depth + 1);
}

}  // namespace

std::string NameOfCallee(const PickleTree& tree, PickleId call) {
  std::string name = NameOfClass(tree, tree.call(call).callee, 0);
  return name.empty() ? "a value that is not a name" : name;
}

bool NamesData(std::string_view name) {
  if (name.empty() || LeadsOn(name)) return false;
  if (std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain)) return true;
  if (StartsWithAny(name, kPlainModules))
    return name.find('.') == name.rfind('.') && LastPart(name) != "namedtuple";
  const std::string_view top = name.substr(0, name.find('.'));
  if (top == "torch" || top == "numpy") return IsValueOfLibrary(name);
  if (top == "builtins") return IsError(LastPart(name));
  return !InList(kRunners, top);
}

bool BuildsData(const PickleTree& tree, PickleId call) { return BuildsDataWithin(tree, call, 0); }

}  // namespace plumbline::audit
