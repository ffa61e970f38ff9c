// Lists the formats that this version reads. The list is explicit, because linkers remove static
// initialisers from static libraries.
#include "audit/readers/checkpoint/reader.h"
#include "audit/readers/dumps/reader.h"
#include "audit/readers/flight_recorder/reader.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/kineto/reader.h"
#include "audit/readers/nccl_log/reader.h"
#include "audit/readers/record/run_record.h"
#include "audit/readers/rollout/column_map.h"
#include "audit/readers/rollout/jsonl.h"
#include "audit/readers/scalars/scalar_reader.h"

namespace plumbline::audit {

const std::vector<const Reader*>& Readers() {
  static const CheckpointReader checkpoint;  // reads the safetensors files that are not dumps
  static const KinetoReader kineto;
  static const FlightRecorderReader flight_recorder;
  static const SafetensorsReader safetensors;
  static const RunRecordReader run_record;
  static const NcclLogReader nccl_log;
  static const std::vector<const Reader*> readers = [] {
    std::vector<const Reader*> list = {&flight_recorder, &kineto};
    // Some of these readers read files of torch.save, so they precede the reader of checkpoints.
    for (const Reader* reader : KnownRollouts()) list.push_back(reader);
    for (const Reader* reader : {&NativeRollouts(), &PrimeRlRollouts(), &NemoRlRollouts()})
      list.push_back(reader);
    for (const Reader* reader :
         std::initializer_list<const Reader*>{&checkpoint, &safetensors, &run_record, &nccl_log})
      list.push_back(reader);
    for (const Reader* reader : ScalarReaders()) list.push_back(reader);
    return list;
  }();
  return readers;
}

const Reader* FindReader(std::string_view format) {
  // Built-in maps may have the same format, so the native reader is returned first.
  if (format == NativeRollouts().format()) return &NativeRollouts();
  for (const Reader* reader : Readers()) {
    if (reader->format() == format) return reader;
  }
  return nullptr;
}

std::string ReadableFormats() {
  std::string out;
  std::string_view last;  // readers of one format are adjacent in the list
  for (const Reader* reader : Readers()) {
    if (reader->format() == last) continue;
    last = reader->format();
    if (!out.empty()) out += ", ";
    out += last;
  }
  return out;
}

}  // namespace plumbline::audit
