// A file that torch.save wrote, opened: its zip, its pickle, and where each storage lies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/pickle/value.h"
#include "audit/readers/zip/archive.h"

namespace plumbline::audit {

class TorchFile {
 public:
  // The problem, or nothing and a complete file. `file` outlives the object.
  static std::optional<Problem> Open(const InputFile& file, std::unique_ptr<TorchFile>* out);
  // The same of a part of a file that torch.save wrote there.
  static std::optional<Problem> OpenPart(const InputFile& file, uint64_t begin, uint64_t size,
                                         std::unique_ptr<TorchFile>* out);

  const PickleTree& tree() const { return tree_; }
  const InputFile& file() const { return file_; }
  // Where a value of the tree stands, in the file.
  uint64_t byte(PickleId id) const { return pickle_at_ + tree_.offset(id); }
  // Is the pickle not what its checksum says? (torch can be told to write none.)
  bool checksum_differs() const { return checksum_differs_; }

  // The tensor that a value of the tree is; nothing: it is none, and then `wrong`, where not empty,
  // says why it cannot be used ("expected ..., found ...").
  std::optional<StoredTensor> Tensor(PickleId id, std::string* wrong) const;
  // The whole storage that a value is, as bytes; nothing: it is none, `wrong` as above.
  std::optional<StoredTensor> StorageBytes(PickleId id, std::string* wrong) const;
  // The number that a value is: Python's, numpy's or a tensor of one element, which is read.
  std::optional<double> Number(PickleId id) const;

 private:
  explicit TorchFile(const InputFile& file) : file_(file) {}
  std::optional<Problem> Read(uint64_t begin, uint64_t size);
  std::optional<StoredTensor> Rebuild(std::string_view how, PickleId arguments,
                                      std::string* wrong) const;
  bool Storage(PickleId id, DType known, StoredTensor* tensor, std::string* wrong) const;

  const InputFile& file_;
  ZipArchive zip_;
  std::string prefix_;  // of the members' names: "archive/"
  std::string pickle_;
  uint64_t pickle_at_ = 0;
  bool swapped_ = false;
  bool checksum_differs_ = false;
  PickleTree tree_;
};

// numpy's scalars and arrays of plain dtypes, whose bytes lie in the pickle.
struct NumpyValue {
  DType dtype = DType::kUnspecified;
  std::string letters;         // numpy's: "f8"
  bool scalar = false;         // which has no shape
  bool columns_first = false;  // Fortran's order
  bool swapped = false;        // the highest byte first
  std::vector<int64_t> shape;
  PickleId bytes = kNoPickle;  // of a scalar as many as the dtype has; an array's may be damaged
};
// Nothing: the value is none.
std::optional<NumpyValue> ReadNumpy(const PickleTree& tree, PickleId id);

// Does a call of this name build what this reader knows: a tensor, or one of numpy's or torch's
// plain values?
bool IsKnownRecord(std::string_view callee);

}  // namespace plumbline::audit
