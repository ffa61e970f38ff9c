#include "audit/readers/rollout/torch_samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/readers/checkpoint/torch_file.h"
#include "audit/readers/pickle/machine.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

// Limit of bytes of a text or a key; longer texts are prompts and answers.
constexpr size_t kMostText = 64;
constexpr int kMostLevels = 6;  // limit of nested containers
constexpr std::string_view kLists[] = {"samples", "rollout_data"};
// If a dict has one of these keys, it holds a batch in columns.
constexpr std::string_view kColumns[] = {"tokens", "responses", "completion_ids", "sequences"};

template <typename... Parts>
void Append(std::string* out, Parts... parts) {
  (out->append(std::string_view(parts)), ...);
}

bool IsPlainText(std::string_view text) {
  return text.size() <= kMostText && std::all_of(text.begin(), text.end(), [](char c) {
           return c >= ' ' && c <= '~' && c != '"' && c != '\\';
         });
}

// Elements of a tensor in memory.
struct Elements {
  std::string bytes;
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape, stride;  // stride in elements
  bool swapped = false;
};

// The samples of one file. Not thread-safe.
class Samples {
 public:
  explicit Samples(InputFile file) : file_(std::move(file)), budget_(Budget(file_.size())) {}

  // Returns the problem, or nothing.
  std::optional<Problem> Open() {
    if (auto problem = TorchFile::Open(file_, &torch_, SampleLimits())) return problem;
    const PickleId root = tree().root();
    PickleId inner = root;
    for (const std::string_view name : kLists) {
      if (const PickleId found = tree().Find(root, name); found != kNoPickle) inner = found;
    }
    if (inner != root) outer_ = root;
    if (tree().Is(inner, PickleKind::kDict)) {
      Columns(inner);
    } else if (tree().Is(inner, PickleKind::kList) || tree().Is(inner, PickleKind::kTuple)) {
      for (const PickleId item : tree().items(inner)) {
        if (tree().Is(item, PickleKind::kDict)) records_.push_back(item);
      }
      count_ = records_.size();
    }
    if (count_ > 0) return std::nullopt;
    return Problem{0, "expected samples of rollouts, found none"};
  }

  size_t count() const { return count_; }

  // Returns the keys of the first samples whose values are not None.
  std::set<std::string, std::less<>> Keys() const {
    constexpr size_t kMostRows = 64;
    std::set<std::string, std::less<>> keys;
    for (size_t row = 0; row < std::min(count_, kMostRows); ++row) {
      for (const auto& [key, value] : Members(row)) {
        if (!tree().Is(value, PickleKind::kNone)) keys.emplace(tree().text(key));
      }
    }
    return keys;
  }

  // Writes one sample. If the text would be too large for the file, or a list cannot be read, sets
  // `wrong` and returns false.
  bool Write(size_t row, std::string* line, std::string* wrong) {
    *line = "{";
    for (const auto& [key, value] : Members(row)) {
      Append(line, line->size() > 1 ? "," : "", "\"", tree().text(key), "\":");
      const bool column = columns_ != kNoPickle && value != kNoPickle && IsColumn(value);
      if (column ? !WriteRow(value, row, line, wrong) : !WriteValue(value, 0, line, wrong))
        return false;
    }
    *line += "}\n";
    if (line->size() > budget_) {
      *wrong = "expected samples that are stored once, found parts that many samples share";
      return false;
    }
    budget_ -= line->size();
    return true;
  }

 private:
  using Member = std::pair<PickleId, PickleId>;

  // Returns the limit of bytes of text for all samples. The text of a stored number has at most 16
  // times its bytes.
  static uint64_t Budget(uint64_t size) { return kFreeBytes + 16 * size; }
  // Returns limits that keep the list of samples. Runs represent the long lists in it, which are
  // read one at a time.
  static PickleLimits SampleLimits() {
    PickleLimits limits;
    limits.bytes = 256u << 20;
    limits.values = 6u << 20;
    limits.plain = 1u << 20;
    limits.whole = kLists[0];
    limits.items = 16u << 20;
    return limits;
  }
  const PickleTree& tree() const { return torch_->tree(); }

  void Columns(PickleId dict) {
    const auto named = [&](std::string_view name) { return tree().Find(dict, name) != kNoPickle; };
    const auto* found = std::find_if(std::begin(kColumns), std::end(kColumns), named);
    if (found == std::end(kColumns)) return;
    columns_ = dict;
    count_ = Rows(tree().Find(dict, *found));
  }

  // Returns the number of rows of a column: the items of a list, or the first axis of a tensor.
  size_t Rows(PickleId id) const {
    if (tree().Is(id, PickleKind::kList)) return tree().length(id);
    std::string wrong;
    const std::optional<StoredTensor> tensor = torch_->Tensor(id, &wrong);
    return tensor && !tensor->shape.empty() ? static_cast<size_t>(tensor->shape[0]) : 0;
  }
  bool IsColumn(PickleId id) const { return Rows(id) == count_; }

  // Returns the members of a sample, and the plain values around the samples.
  std::vector<Member> Members(size_t row) const {
    std::vector<Member> members;
    const PickleId own = columns_ != kNoPickle ? columns_ : records_[row];
    Add(own, kNoPickle, &members);
    if (outer_ != kNoPickle) Add(outer_, own, &members);
    return members;
  }

  // Adds the members of `dict`. If `unless` is given, leaves out its keys, and values that are not
  // plain.
  void Add(PickleId dict, PickleId unless, std::vector<Member>* members) const {
    const std::vector<PickleId>& pairs = tree().items(dict);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (!tree().Is(pairs[i], PickleKind::kText) || !IsPlainText(tree().text(pairs[i]))) continue;
      if (unless != kNoPickle && (tree().Find(unless, tree().text(pairs[i])) != kNoPickle ||
                                  tree().kind(pairs[i + 1]) > PickleKind::kText))
        continue;
      members->emplace_back(pairs[i], pairs[i + 1]);
    }
  }

  bool WriteRow(PickleId column, size_t row, std::string* out, std::string* wrong) {
    if (tree().Is(column, PickleKind::kList)) {
      const std::vector<PickleId>& items = tree().items(column);
      // Plain values of a long list may be in a run. Such numbers belong to no sequence.
      if (items.size() != count_) return *out += "null", true;
      return WriteValue(items[row], 0, out, wrong);
    }
    std::optional<StoredTensor> tensor = torch_->Tensor(column, wrong);
    if (!tensor) return false;
    tensor->begin += row * static_cast<uint64_t>(tensor->stride[0]) * DTypeSize(tensor->dtype);
    tensor->shape.erase(tensor->shape.begin());
    tensor->stride.erase(tensor->stride.begin());
    return WriteTensor(*tensor, out, wrong);
  }

  bool WriteValue(PickleId id, int level, std::string* out, std::string* wrong) {
    if (level > kMostLevels || out->size() > budget_) return *out += "null", true;
    switch (tree().kind(id)) {
      case PickleKind::kBool:
        return *out += tree().truth(id) ? "true" : "false", true;
      case PickleKind::kInt:
        return absl::StrAppend(out, tree().whole(id)), true;
      case PickleKind::kReal:
        return WriteNumber(tree().real(id), out), true;
      case PickleKind::kText:
        if (IsPlainText(tree().text(id))) return Append(out, "\"", tree().text(id), "\""), true;
        break;
      case PickleKind::kList:
      case PickleKind::kTuple:
        return WriteList(id, level, out, wrong);
      case PickleKind::kDict:
        return WriteDict(id, level, out, wrong);
      case PickleKind::kCall:
        return WriteCall(id, out, wrong);
      default:
        break;
    }
    return *out += "null", true;
  }

  bool WriteList(PickleId id, int level, std::string* out, std::string* wrong) {
    *out += '[';
    bool first = true;
    for (const PickleId item : tree().items(id)) {
      if (!std::exchange(first, false)) *out += ',';
      const bool run = tree().Is(item, PickleKind::kRun);
      if (run ? !WriteRun(item, out, wrong) : !WriteValue(item, level + 1, out, wrong))
        return false;
    }
    return *out += ']', true;
  }

  // Reads again the plain values that the tree did not keep.
  bool WriteRun(PickleId id, std::string* out, std::string* wrong) {
    std::string pickle;
    Append(&pickle, "]", tree().run_bytes(id), ".");
    PickleTree values;
    PickleLimits limits;
    limits.plain = limits.values;
    if (!tree().run(id).closed || ParsePickle(pickle, &values, nullptr, limits) ||
        values.has_runs()) {
      *wrong = "expected lists of numbers, found a list that shares its values with others";
      return false;
    }
    bool first = true;
    for (const PickleId item : values.items(values.root())) {
      if (!std::exchange(first, false)) *out += ',';
      if (values.Is(item, PickleKind::kInt)) {
        absl::StrAppend(out, values.whole(item));
      } else if (values.Is(item, PickleKind::kReal)) {
        WriteNumber(values.real(item), out);
      } else if (values.Is(item, PickleKind::kBool)) {
        *out += values.truth(item) ? "true" : "false";
      } else {
        *out += "null";
      }
    }
    return true;
  }

  bool WriteDict(PickleId id, int level, std::string* out, std::string* wrong) {
    std::vector<Member> members;
    Add(id, kNoPickle, &members);
    *out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      Append(out, i > 0 ? "," : "", "\"", tree().text(members[i].first), "\":");
      if (!WriteValue(members[i].second, level + 1, out, wrong)) return false;
    }
    return *out += '}', true;
  }

  bool WriteCall(PickleId id, std::string* out, std::string* wrong) {
    if (const std::optional<StoredTensor> tensor = torch_->Tensor(id, wrong))
      return WriteTensor(*tensor, out, wrong);
    if (!wrong->empty()) return false;
    const std::optional<NumpyValue> array = ReadNumpy(tree(), id);
    if (!array) return *out += "null", true;
    Elements all{tree().bytes(array->bytes), array->dtype, array->shape, DenseStrides(array->shape),
                 array->swapped};
    uint64_t size = DTypeSize(array->dtype);
    for (const int64_t extent : array->shape) size *= static_cast<uint64_t>(extent);
    if (all.bytes.size() < size) return *out += "null", true;  // the tensor is damaged
    if (array->columns_first) {
      std::vector<int64_t> turned(array->shape.rbegin(), array->shape.rend());
      turned = DenseStrides(turned);
      all.stride.assign(turned.rbegin(), turned.rend());
    }
    WriteElements(all, 0, 0, out);
    return true;
  }

  bool WriteTensor(const StoredTensor& tensor, std::string* out, std::string* wrong) {
    const size_t size = DTypeSize(tensor.dtype);
    if (size == 0) return *out += "null", true;
    Elements all{"", tensor.dtype, tensor.shape, tensor.stride, tensor.swapped};
    if (tensor.elements() > 0) {
      uint64_t last = 0;
      for (size_t i = 0; i < all.shape.size(); ++i)
        last += static_cast<uint64_t>((all.shape[i] - 1) * all.stride[i]);
      all.bytes.resize((last + 1) * size);
      if (all.bytes.size() > budget_) {
        *wrong = "expected tensors that are stored once, found views that many samples share";
        return false;
      }
      budget_ -= all.bytes.size();
      if (const absl::Status s = file_.ReadAt(tensor.begin, all.bytes.data(), all.bytes.size());
          !s.ok())
        return *wrong = std::string(s.message()), false;
    }
    WriteElements(all, 0, 0, out);
    return true;
  }

  void WriteElements(const Elements& all, size_t axis, int64_t at, std::string* out) const {
    if (axis == all.shape.size()) return WriteElement(all, at, out);
    if (out->size() > budget_) return;
    *out += '[';
    for (int64_t i = 0; i < all.shape[axis]; ++i) {
      if (i > 0) *out += ',';
      WriteElements(all, axis + 1, at + i * all.stride[axis], out);
    }
    *out += ']';
  }

  static void WriteElement(const Elements& all, int64_t at, std::string* out) {
    const size_t size = DTypeSize(all.dtype);
    char element[8] = {};
    std::memcpy(element, all.bytes.data() + static_cast<size_t>(at) * size, size);
    if (all.swapped) std::reverse(element, element + size);
    WriteNumber(LoadDouble(element, all.dtype, 0), out);
  }

  // Writes all digits, so that the rules get exactly the stored value.
  static void WriteNumber(double value, std::string* out) {
    constexpr double kWhole = 9e15;
    if (std::isnan(value)) {
      *out += "NaN";
    } else if (std::isinf(value)) {
      *out += value > 0 ? "Infinity" : "-Infinity";
    } else if (value == std::trunc(value) && std::fabs(value) < kWhole) {
      absl::StrAppend(out, static_cast<int64_t>(value));
    } else {
      absl::StrAppendFormat(out, "%.17g", value);
    }
  }

  InputFile file_;
  std::unique_ptr<TorchFile> torch_;
  PickleId outer_ = kNoPickle;  // the dict around the samples
  // The dict that holds a batch in columns; if absent, records_ has the samples.
  PickleId columns_ = kNoPickle;
  std::vector<PickleId> records_;
  size_t count_ = 0;
  uint64_t budget_;
};

class TorchStream : public ByteStream {
 public:
  TorchStream(InputFile progress, InputFile file)
      : ByteStream(std::move(progress)), samples_(std::move(file)) {
    if (auto problem = samples_.Open()) Fail(std::move(problem->text), true);
  }

 protected:
  size_t Produce(char* data, size_t size) override {
    std::string wrong;
    while (at_ == line_.size()) {
      at_ = 0;
      if (row_ == samples_.count()) return line_.clear(), 0;
      if (!samples_.Write(row_++, &line_, &wrong)) {
        Fail(absl::StrFormat("%s (sample %d)", wrong, row_), true);
        return line_.clear(), 0;
      }
    }
    const size_t got = std::min(size, line_.size() - at_);
    std::memcpy(data, line_.data() + at_, got);
    at_ += got;
    return got;
  }

 private:
  Samples samples_;
  std::string line_;
  size_t at_ = 0, row_ = 0;
};

}  // namespace

bool MayHoldSamples(std::string_view head) {
  if (!head.starts_with("PK\x03\x04")) return false;
  // A pickle writes the length before a text, in one or four bytes.
  const auto has = [&](std::string_view name) {
    const auto size = static_cast<char>(name.size());
    return head.find(std::string({size, 0, 0, 0}).append(name)) != head.npos ||
           head.find(std::string({'\x8c', size}).append(name)) != head.npos;
  };
  return std::any_of(std::begin(kLists), std::end(kLists), has) ||
         std::any_of(std::begin(kColumns), std::end(kColumns), has);
}

std::set<std::string, std::less<>> KeysOfTorchSamples(const std::string& path) {
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return {};
  Samples samples(std::move(*file));
  if (samples.Open()) return {};
  return samples.Keys();
}

std::unique_ptr<ByteStream> OpenTorchSamples(const std::string& path, InputFile file) {
  absl::StatusOr<InputFile> again = InputFile::Open(path);
  if (!again.ok()) return ByteStream::Open(std::move(file));
  return std::make_unique<TorchStream>(std::move(file), std::move(*again));
}

}  // namespace plumbline::audit
