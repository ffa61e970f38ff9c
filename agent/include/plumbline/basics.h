/* Plumbline's C ABI: tensors, exported symbols, and the status of a call. Included by plumbline.h,
 * whose rules apply. */
#ifndef PLUMBLINE_BASICS_H_
#define PLUMBLINE_BASICS_H_

#include <stddef.h>
#include <stdint.h>

/* Tensors are passed as DLPack's DLTensor. If you use another copy of dlpack.h, include it before
 * this file. If there is none, this file defines the same layout. */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#if !defined(DLPACK_DLPACK_H_)
typedef struct {
  int32_t device_type; /* PLUMBLINE_DL_CPU, ... */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* PLUMBLINE_DL_INT, ... */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;       /* [ndim] */
  int64_t* strides;     /* [ndim] in elements, may be negative; NULL: C order */
  uint64_t byte_offset; /* added to data */
} DLTensor;
#endif

/* DLPack's codes under our own names, because older headers lack the newer ones. */
#define PLUMBLINE_DL_INT 0
#define PLUMBLINE_DL_UINT 1
#define PLUMBLINE_DL_FLOAT 2
#define PLUMBLINE_DL_BFLOAT 4
#define PLUMBLINE_DL_BOOL 6           /* 8 bits, 0 or 1 */
#define PLUMBLINE_DL_FLOAT8_E4M3FN 10 /* 8 bits, no infinities */
#define PLUMBLINE_DL_FLOAT8_E5M2 12
#define PLUMBLINE_DL_CPU 1
#define PLUMBLINE_DL_CUDA 2
#define PLUMBLINE_DL_CUDA_HOST 3
#define PLUMBLINE_DL_CUDA_MANAGED 13

#if defined(__GNUC__)
#define PLUMBLINE_API __attribute__((visibility("default")))
#else
#define PLUMBLINE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* If >= 0, the caller need not act. If < 0, the call failed; plumbline_last_error returns the
 * reason. */
typedef int32_t plumbline_status_t;
enum {
  PLUMBLINE_OK = 0,
  PLUMBLINE_NOT_DUE = 1,              /* this site is not measured at this step */
  PLUMBLINE_DISABLED = 2,             /* PLUMBLINE_DISABLE=1, a forked child, or a closed run */
  PLUMBLINE_DROPPED = 3,              /* the evidence could not be kept; it is counted and reported
                                       * as data loss */
  PLUMBLINE_INVALID_ARGUMENT = -1,    /* nothing was recorded */
  PLUMBLINE_FAILED_PRECONDITION = -2, /* e.g. an observation outside step_begin ... step_end */
  PLUMBLINE_UNAVAILABLE = -3,         /* the agent library is missing or disabled, or a tensor is on
                                       * a device that cannot be used */
  PLUMBLINE_DEADLINE_EXCEEDED = -4,  /* flush or close did not finish in time; losses are counted */
  PLUMBLINE_RESOURCE_EXHAUSTED = -5, /* out of memory, or too many sites */
  PLUMBLINE_INTERNAL = -6
};

/* Returns the name of a status: "ok", "not-due", ..., or "unknown-status" for any other number.
 * Static storage. */
PLUMBLINE_API const char* plumbline_status_name(plumbline_status_t status);

/* Returns the text of the last call of this thread that returned a negative status: what failed,
 * where, and what was expected. Returns "" if no call failed. Valid until the thread's next call.
 */
PLUMBLINE_API const char* plumbline_last_error(void);

/* Returns the version, "0.2.0~git20261128.143005.abc1234": number, date and UTC time of the commit,
 * commit hash. The version of a later commit is greater for `dpkg --compare-versions`. Static
 * storage. */
PLUMBLINE_API const char* plumbline_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_BASICS_H_ */
