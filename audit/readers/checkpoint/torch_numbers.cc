#include "audit/readers/checkpoint/torch_numbers.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "audit/readers/checkpoint/torch_file.h"
#include "base/printable.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostItems = 64;
constexpr size_t kMostBytesOfName = 512;
constexpr size_t kMostVisits = size_t{1} << 20;

class NumberWalk {
 public:
  explicit NumberWalk(const TorchFile& file) : file_(file), tree_(file.tree()) {}

  std::vector<NamedNumber> Walk() {
    Visit(tree_.root(), "");
    return std::move(numbers_);
  }

 private:
  void Visit(PickleId id, const std::string& name) {
    if (numbers_.size() >= kMostNumbers || ++visits_ > kMostVisits) return;
    switch (tree_.kind(id)) {
      case PickleKind::kBool:
        return Add({name, true, tree_.truth(id) ? 1 : 0, 0});
      case PickleKind::kInt:
        return Add({name, true, tree_.whole(id), 0});
      case PickleKind::kReal:
        return Add({name, false, 0, tree_.real(id)});
      case PickleKind::kCall:
        return VisitCall(id, name);
      case PickleKind::kDict:
        return VisitDict(id, name);
      case PickleKind::kList:
      case PickleKind::kTuple: {
        const std::vector<PickleId>& items = tree_.items(id);
        for (size_t i = 0; i < items.size() && items.size() <= kMostItems; ++i)
          Visit(items[i], Under(name, std::to_string(i)));
        return;
      }
      default:
        return;
    }
  }

  void VisitDict(PickleId id, const std::string& name) {
    const std::vector<PickleId>& pairs = tree_.items(id);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      std::string key;
      if (tree_.Is(pairs[i], PickleKind::kText)) {
        key = ValidUtf8(tree_.text(pairs[i]).substr(0, kMostBytesOfName));
      } else if (tree_.Is(pairs[i], PickleKind::kInt)) {
        key = std::to_string(tree_.whole(pairs[i]));
      } else {
        continue;
      }
      // The numbers of an optimizer's parameters are names.
      if (key == "params" && tree_.Is(pairs[i + 1], PickleKind::kList)) continue;
      Visit(pairs[i + 1], Under(name, key));
    }
  }

  // numpy's scalars. Tensors are none, and are not read.
  void VisitCall(PickleId id, const std::string& name) {
    std::string wrong;
    if (file_.Tensor(id, &wrong) || !wrong.empty()) return;
    if (const std::optional<double> value = file_.Number(id)) Add({name, false, 0, *value});
  }

  void Add(NamedNumber number) { numbers_.push_back(std::move(number)); }

  static std::string Under(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : (prefix + "." + name).substr(0, kMostBytesOfName);
  }

  const TorchFile& file_;
  const PickleTree& tree_;
  std::vector<NamedNumber> numbers_;
  size_t visits_ = 0;
};

}  // namespace

bool NamedNumber::Is(const NamedNumber& other) const {
  if (whole && other.whole) return integer == other.integer;
  const double mine = whole ? static_cast<double>(integer) : real;
  const double its = other.whole ? static_cast<double>(other.integer) : other.real;
  return mine == its || (std::isnan(mine) && std::isnan(its));
}

std::string NamedNumber::text() const {
  if (whole) return std::to_string(integer);
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, real).ptr);
}

std::vector<NamedNumber> PlainNumbers(const InputFile& file) {
  const absl::StatusOr<std::string> head = file.Head(4);
  std::unique_ptr<TorchFile> torch;
  if (!head.ok() || *head != "PK\x03\x04" || TorchFile::Open(file, &torch)) return {};
  return NumberWalk(*torch).Walk();
}

}  // namespace plumbline::audit
