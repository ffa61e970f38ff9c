#include "audit/readers/checkpoint/torch_file.h"

#include <zlib.h>

#include <array>
#include <cstring>
#include <utility>

#include "audit/readers/pickle/machine.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

struct TorchDType {
  std::string_view storage;  // torch.<storage>Storage
  std::string_view dtype;    // torch.<dtype>
  DType type;
};

constexpr TorchDType kTorchDTypes[] = {
    {"Double", "float64", DType::kF64}, {"Float", "float32", DType::kF32},
    {"Half", "float16", DType::kF16},   {"BFloat16", "bfloat16", DType::kBF16},
    {"Long", "int64", DType::kI64},     {"Int", "int32", DType::kI32},
    {"Short", "int16", DType::kI16},    {"Char", "int8", DType::kI8},
    {"Byte", "uint8", DType::kU8},      {"Bool", "bool", DType::kBool},
    {"", "uint16", DType::kU16},        {"", "uint32", DType::kU32},
    {"", "uint64", DType::kU64},        {"", "float8_e4m3fn", DType::kE4M3},
    {"", "float8_e5m2", DType::kE5M2},
};

// Parses "torch.FloatStorage", "torch.cuda.FloatStorage".
DType DTypeOfStorage(std::string_view type) {
  if (!type.starts_with("torch.") || !type.ends_with("Storage")) return DType::kUnspecified;
  type.remove_suffix(std::string_view("Storage").size());
  type.remove_prefix(type.rfind('.') + 1);
  for (const TorchDType& known : kTorchDTypes) {
    if (!known.storage.empty() && known.storage == type) return known.type;
  }
  return DType::kUnspecified;
}

DType DTypeOfName(std::string_view name) {
  if (!name.starts_with("torch.")) return DType::kUnspecified;
  name.remove_prefix(6);
  for (const TorchDType& known : kTorchDTypes) {
    if (known.dtype == name) return known.type;
  }
  return DType::kUnspecified;
}

constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

// Returns the dtype of numpy's code.
DType DTypeOfLetters(std::string_view letters) {
  constexpr std::pair<std::string_view, DType> kLetters[] = {
      {"f8", DType::kF64}, {"f4", DType::kF32}, {"f2", DType::kF16}, {"i8", DType::kI64},
      {"i4", DType::kI32}, {"i2", DType::kI16}, {"i1", DType::kI8},  {"u8", DType::kU64},
      {"u4", DType::kU32}, {"u2", DType::kU16}, {"u1", DType::kU8},  {"b1", DType::kBool}};
  for (const auto& [name, type] : kLetters) {
    if (name == letters) return type;
  }
  return DType::kUnspecified;
}

bool Whole(const PickleTree& tree, PickleId id, int64_t* value) {
  if (!tree.Is(id, PickleKind::kInt)) return false;
  *value = tree.whole(id);
  return true;
}

bool WholeList(const PickleTree& tree, PickleId id, std::vector<int64_t>* values) {
  if (tree.callee(id) == "torch.Size" && tree.items(tree.call(id).arguments).size() == 1)
    id = tree.items(tree.call(id).arguments)[0];
  if (!tree.Is(id, PickleKind::kTuple) && !tree.Is(id, PickleKind::kList)) return false;
  if (tree.items(id).size() > 64) return false;
  for (const PickleId item : tree.items(id)) {
    if (!Whole(tree, item, &values->emplace_back())) return false;
  }
  return true;
}

bool IsRebuild(std::string_view name) {
  return name == "torch._utils._rebuild_tensor" || name == "torch._utils._rebuild_tensor_v2" ||
         name == "torch._utils._rebuild_tensor_v3" || name == "torch._utils._rebuild_parameter" ||
         name == "torch._utils._rebuild_parameter_with_state" ||
         name == "torch._tensor._rebuild_from_type_v2";
}

bool IsNumpyCall(std::string_view name) {
  for (const std::string_view core : {"numpy.core.multiarray.", "numpy._core.multiarray."}) {
    if (name.starts_with(core))
      return name.substr(core.size()) == "_reconstruct" || name.substr(core.size()) == "scalar";
  }
  return name == "numpy.dtype" || name == "numpy.ndarray";
}

}  // namespace

bool IsKnownRecord(std::string_view callee) {
  return IsRebuild(callee) || IsNumpyCall(callee) || callee == "torch.Size" ||
         callee == "torch.device" || callee == "torch.serialization._get_layout" ||
         callee == "torch.torch_version.TorchVersion";
}

std::optional<Problem> TorchFile::Open(const InputFile& file, std::unique_ptr<TorchFile>* out,
                                       const PickleLimits& limits) {
  std::unique_ptr<TorchFile> opened(new TorchFile(file));
  if (auto problem = opened->Read(0, file.size(), limits)) return problem;
  *out = std::move(opened);
  return std::nullopt;
}

std::optional<Problem> TorchFile::OpenPart(const InputFile& file, uint64_t begin, uint64_t size,
                                           std::unique_ptr<TorchFile>* out) {
  std::unique_ptr<TorchFile> opened(new TorchFile(file));
  if (auto problem = opened->Read(begin, size, CheckpointLimits())) return problem;
  *out = std::move(opened);
  return std::nullopt;
}

PickleLimits TorchFile::CheckpointLimits() {
  PickleLimits limits;
  // The parameters of an optimizer's group: they are the keys of its state.
  limits.whole = "params";
  return limits;
}

std::optional<Problem> TorchFile::Read(uint64_t begin, uint64_t size, const PickleLimits& limits) {
  if (auto problem = ReadZip(file_, begin, size, &zip_)) return problem;
  const ZipMember* pickle = nullptr;
  for (const ZipMember& member : zip_.members) {
    const size_t slash = member.name.find('/');
    if (slash != std::string::npos && member.name.substr(slash) == "/data.pkl") pickle = &member;
  }
  if (pickle == nullptr) {
    return Problem{0, "expected a member data.pkl, as torch.save writes it, found none of " +
                          std::to_string(zip_.members.size()) + " members"};
  }
  if (!pickle->unreadable.empty())
    return Problem{pickle->head,
                   "expected data.pkl stored without compression, found it " + pickle->unreadable};
  if (pickle->size > limits.bytes) {
    return Problem{pickle->head, "expected a pickle of at most " + std::to_string(limits.bytes) +
                                     " bytes, found " + std::to_string(pickle->size)};
  }
  prefix_ = pickle->name.substr(0, pickle->name.find('/') + 1);
  pickle_at_ = pickle->begin;
  pickle_.resize(pickle->size);
  if (const absl::Status s = file_.ReadAt(pickle_at_, pickle_.data(), pickle_.size()); !s.ok())
    return Problem{pickle_at_, std::string(s.message())};
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(pickle_.data()), static_cast<uInt>(pickle_.size()));
  checksum_differs_ = pickle->crc != 0 && pickle->crc != crc;
  if (const ZipMember* order = zip_.Find(prefix_ + "byteorder");
      order != nullptr && order->unreadable.empty() && order->size <= 16) {
    std::string text(order->size, '\0');
    if (file_.ReadAt(order->begin, text.data(), text.size()).ok()) swapped_ = text == "big";
  }
  if (auto problem = ParsePickle(pickle_, &tree_, nullptr, limits)) {
    problem->offset += pickle_at_;
    return problem;
  }
  return std::nullopt;
}

std::optional<StoredTensor> TorchFile::Tensor(PickleId id, std::string* wrong) const {
  const std::string_view callee = tree_.callee(id);
  return IsRebuild(callee) ? Rebuild(callee, tree_.call(id).arguments, wrong) : std::nullopt;
}

std::optional<StoredTensor> TorchFile::Rebuild(std::string_view how, PickleId arguments,
                                               std::string* wrong) const {
  const std::vector<PickleId>& items = tree_.items(arguments);
  if (how.find("_rebuild_parameter") != std::string_view::npos)
    return items.empty() ? std::nullopt : Tensor(items[0], wrong);
  if (how == "torch._tensor._rebuild_from_type_v2") {
    // Reads (function, type, arguments of the type, state). Returns the value that the function
    // builds.
    const bool fits = items.size() >= 3 && tree_.Is(items[0], PickleKind::kGlobal) &&
                      tree_.Is(items[2], PickleKind::kTuple) && IsRebuild(tree_.text(items[0])) &&
                      tree_.text(items[0]) != how;
    return fits ? Rebuild(tree_.text(items[0]), items[2], wrong) : std::nullopt;
  }
  const bool third = how == "torch._utils._rebuild_tensor_v3";
  StoredTensor tensor;
  int64_t offset = 0;
  if (items.size() < (third ? 7u : 4u) || !Whole(tree_, items[1], &offset) || offset < 0 ||
      !WholeList(tree_, items[2], &tensor.shape) || !WholeList(tree_, items[3], &tensor.stride)) {
    *wrong = "expected a tensor's storage, offset, size and stride, found other values";
    return std::nullopt;
  }
  DType known = DType::kUnspecified;
  if (third && tree_.Is(items[6], PickleKind::kGlobal)) known = DTypeOfName(tree_.text(items[6]));
  if (third)
    tensor.dtype_name = tree_.Is(items[6], PickleKind::kGlobal) ? tree_.text(items[6]) : "";
  if (!Storage(items[0], known, &tensor, wrong)) return std::nullopt;
  // The bits of a lazily negated view (torch.imag of a conjugate) are not its values.
  const size_t extra = third ? 7 : 6;
  const PickleId bits = items.size() > extra ? tree_.Find(items[extra], "neg") : kNoPickle;
  if (tree_.Is(bits, PickleKind::kBool) && tree_.truth(bits)) {
    tensor.negated = tensor.dtype;
    tensor.dtype = DType::kUnspecified;
    tensor.dtype_name += " of a negated view";
  }
  uint64_t begin = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(offset), DTypeSize(tensor.dtype), &begin) ||
      __builtin_add_overflow(begin, tensor.first, &tensor.begin)) {
    *wrong = "expected an offset within the tensor's storage, found " + std::to_string(offset);
    return std::nullopt;
  }
  if (std::string bad = CheckStored(tensor); !bad.empty()) {
    *wrong = "expected " + bad;
    return std::nullopt;
  }
  return tensor;
}

// Reads ('storage', type, key, location, elements). An untyped storage has its size in bytes, and
// the tensor gives its dtype.
bool TorchFile::Storage(PickleId id, DType known, StoredTensor* tensor, std::string* wrong) const {
  const PickleId pid = tree_.Is(id, PickleKind::kPersistent) ? tree_.items(id)[0] : kNoPickle;
  int64_t elements = 0;
  if (!tree_.Is(pid, PickleKind::kTuple) || tree_.items(pid).size() < 5 ||
      !tree_.Is(tree_.items(pid)[1], PickleKind::kGlobal) ||
      !tree_.Is(tree_.items(pid)[2], PickleKind::kText) ||
      !Whole(tree_, tree_.items(pid)[4], &elements) || elements < 0) {
    *wrong = "expected a storage's type, key and size, found other values";
    return false;
  }
  const std::string_view type = tree_.text(tree_.items(pid)[1]);
  const bool untyped = type == kUntyped;
  tensor->dtype = untyped ? known : DTypeOfStorage(type);
  if (tensor->dtype_name.empty()) tensor->dtype_name = std::string(type);
  tensor->swapped = swapped_;
  const std::string name = prefix_ + "data/" + std::string(tree_.text(tree_.items(pid)[2]));
  const ZipMember* member = zip_.Find(name);
  if (member == nullptr || !member->unreadable.empty()) {
    *wrong = "expected the storage " + Quoted(name) + ", found " +
             (member == nullptr ? "no such member" : "it " + member->unreadable);
    return false;
  }
  const uint64_t width = untyped ? 1 : DTypeSize(tensor->dtype);
  if (width != 0 && member->size / width != static_cast<uint64_t>(elements)) {
    *wrong = "expected " + std::to_string(elements) + " elements in the storage " + Quoted(name) +
             ", found " + std::to_string(member->size) + " bytes";
    return false;
  }
  tensor->first = member->begin;
  tensor->last = member->end();
  return true;
}

std::optional<StoredTensor> TorchFile::StorageBytes(PickleId id, std::string* wrong) const {
  if (!tree_.Is(id, PickleKind::kPersistent)) return std::nullopt;
  StoredTensor bytes;
  if (!Storage(id, DType::kUnspecified, &bytes, wrong)) return std::nullopt;
  bytes.dtype = DType::kU8;
  bytes.begin = bytes.first;
  bytes.swapped = false;
  bytes.shape = {static_cast<int64_t>(bytes.last - bytes.first)};
  bytes.stride = {1};
  return bytes;
}

namespace {

// Reads numpy.dtype("f8", False, True), whose state has the byte order.
bool ReadNumpyDType(const PickleTree& tree, PickleId id, NumpyValue* value) {
  if (tree.callee(id) != "numpy.dtype") return false;
  const std::vector<PickleId>& letters = tree.items(tree.call(id).arguments);
  if (letters.empty() || !tree.Is(letters[0], PickleKind::kText)) return false;
  value->letters = tree.text(letters[0]);
  value->dtype = DTypeOfLetters(value->letters);
  const PickleId state = tree.call(id).state;
  if (tree.Is(state, PickleKind::kTuple) && tree.items(state).size() >= 2)
    value->swapped =
        tree.Is(tree.items(state)[1], PickleKind::kText) && tree.text(tree.items(state)[1]) == ">";
  return value->dtype != DType::kUnspecified;
}

}  // namespace

std::optional<NumpyValue> ReadNumpy(const PickleTree& tree, PickleId id) {
  const std::string_view callee = tree.callee(id);
  if (!IsNumpyCall(callee)) return std::nullopt;
  NumpyValue value;
  uint64_t count = 1;
  if (callee.ends_with(".scalar")) {
    const std::vector<PickleId>& items = tree.items(tree.call(id).arguments);
    if (items.size() != 2 || !ReadNumpyDType(tree, items[0], &value)) return std::nullopt;
    value.scalar = true;
    value.bytes = items[1];
  } else {
    // The state of _reconstruct(...) is (version, shape, dtype, is Fortran order, bytes).
    const PickleId state = tree.call(id).state;
    if (!tree.Is(state, PickleKind::kTuple) || tree.items(state).size() != 5) return std::nullopt;
    const std::vector<PickleId>& items = tree.items(state);
    if (!WholeList(tree, items[1], &value.shape) || !ReadNumpyDType(tree, items[2], &value) ||
        !tree.Is(items[3], PickleKind::kBool))
      return std::nullopt;
    value.columns_first = tree.truth(items[3]);
    value.bytes = items[4];
    for (const int64_t extent : value.shape) {
      if (extent < 0 || __builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count))
        return std::nullopt;
    }
  }
  if (!tree.Is(value.bytes, PickleKind::kBytes)) return std::nullopt;
  // A byte that was written as text takes up to two bytes.
  const uint64_t size = tree.text(value.bytes).size();
  if (count > size || count * DTypeSize(value.dtype) > size ||
      (count * DTypeSize(value.dtype) + 1) * 2 < size)
    return std::nullopt;
  if (value.scalar && tree.bytes(value.bytes).size() != DTypeSize(value.dtype)) return std::nullopt;
  return value;
}

std::optional<double> TorchFile::Number(PickleId id) const {
  if (tree_.Is(id, PickleKind::kInt)) return static_cast<double>(tree_.whole(id));
  if (tree_.Is(id, PickleKind::kReal)) return tree_.real(id);
  if (!tree_.Is(id, PickleKind::kCall)) return std::nullopt;
  std::string wrong;
  const std::optional<StoredTensor> tensor = Tensor(id, &wrong);
  if (!tensor) {
    const std::optional<NumpyValue> number = ReadNumpy(tree_, id);
    if (!number || !number->scalar || number->swapped) return std::nullopt;
    return LoadDouble(tree_.bytes(number->bytes).data(), number->dtype, 0);
  }
  const size_t size = DTypeSize(tensor->dtype);
  if (size == 0 || tensor->elements() != 1) return std::nullopt;
  std::array<char, 8> bytes{};
  if (!file_.ReadAt(tensor->begin, bytes.data(), size).ok()) return std::nullopt;
  if (tensor->swapped) std::reverse(bytes.begin(), bytes.begin() + static_cast<long>(size));
  return LoadDouble(bytes.data(), tensor->dtype, 0);
}

}  // namespace plumbline::audit
