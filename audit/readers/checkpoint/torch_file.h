// An open file of torch.save: its zip, its pickle, and the place of each storage.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/pickle/machine.h"
#include "audit/readers/pickle/value.h"
#include "audit/readers/zip/archive.h"

namespace plumbline::audit {

class TorchFile {
 public:
  // Opens a file. Returns the problem, or nothing and a complete file. `file` must outlive the
  // object.
  static std::optional<Problem> Open(const InputFile& file, std::unique_ptr<TorchFile>* out,
                                     const PickleLimits& limits = CheckpointLimits());
  // Opens a part of a file, in which torch.save wrote a whole file.
  static std::optional<Problem> OpenPart(const InputFile& file, uint64_t begin, uint64_t size,
                                         std::unique_ptr<TorchFile>* out);

  const PickleTree& tree() const { return tree_; }
  const InputFile& file() const { return file_; }
  // Returns the offset of a value of the tree in the file.
  uint64_t byte(PickleId id) const { return pickle_at_ + tree_.offset(id); }
  // Returns true if the pickle does not match its checksum. (torch can be configured to write
  // none.)
  bool checksum_differs() const { return checksum_differs_; }

  // Returns the tensor of a value of the tree. If the value is no tensor, returns nothing. If it is
  // a tensor that cannot be used, sets `wrong` ("expected ..., found ...").
  std::optional<StoredTensor> Tensor(PickleId id, std::string* wrong) const;
  // Returns the whole storage of a value, as bytes. Otherwise returns nothing and sets `wrong` as
  // above.
  std::optional<StoredTensor> StorageBytes(PickleId id, std::string* wrong) const;
  // Returns the number in a value: a number of Python or numpy, or a tensor of one element, which
  // is read from the file.
  std::optional<double> Number(PickleId id) const;

 private:
  explicit TorchFile(const InputFile& file) : file_(file) {}
  static PickleLimits CheckpointLimits();
  std::optional<Problem> Read(uint64_t begin, uint64_t size, const PickleLimits& limits);
  std::optional<StoredTensor> Rebuild(std::string_view how, PickleId arguments,
                                      std::string* wrong) const;
  bool Storage(PickleId id, DType known, StoredTensor* tensor, std::string* wrong) const;

  const InputFile& file_;
  ZipArchive zip_;
  std::string prefix_;  // prefix of the members' names: "archive/"
  std::string pickle_;
  uint64_t pickle_at_ = 0;
  bool swapped_ = false;
  bool checksum_differs_ = false;
  PickleTree tree_;
};

// A numpy scalar or array of a plain dtype, whose bytes are in the pickle.
struct NumpyValue {
  DType dtype = DType::kUnspecified;
  std::string letters;         // numpy's code: "f8"
  bool scalar = false;         // a scalar has no shape
  bool columns_first = false;  // elements are in Fortran order
  bool swapped = false;        // elements have the highest byte first
  std::vector<int64_t> shape;
  // The bytes of a scalar fit its dtype; those of an array may be damaged.
  PickleId bytes = kNoPickle;
};
// Reads a numpy value. If the value is not of numpy, returns nothing.
std::optional<NumpyValue> ReadNumpy(const PickleTree& tree, PickleId id);

// Returns true if a call of this name builds a value that this reader knows: a tensor, or a plain
// value of numpy or torch.
bool IsKnownRecord(std::string_view callee);

}  // namespace plumbline::audit
