/* CUDA's runtime without a GPU, for test_cuda_standin.py: kernels do nothing, memory is the host's and stays zero, and
   a capture refuses what CUDA's refuses. Preloaded before torch's own libraries, which then find one device.

   What is wrong in a capture is said on standard error behind "standin:". The soname is the driver's, so that torch's
   part that is linked to it loads, too. Linux alone. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY ((size_t)(getenv("STANDIN_GIB") ? atoi(getenv("STANDIN_GIB")) : 140) << 30)
#define MOST 65536

typedef cudaError_t E;
typedef cudaStream_t S;
struct block { char *at; size_t size; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block device[MOST], host[MOST];
static int devices, hosts;
static size_t used;
static uintptr_t streams = 0x1000, capture;
static S capturing;
static pthread_t capturer;
static int capture_mode, broken;
static __thread int own_mode;
static __thread E last;

static E fail(E error) { last = error; return error; }

static E refuse(E error, const char *what) {
  fprintf(stderr, "standin: %s\n", what);
  broken = 1;
  return fail(error);
}

/* Calls that a capture forbids: to all threads in mode global (0), to the capturing one in thread_local (1). */
static E unsafe(const char *call) {
  if (!capturing || own_mode == 2 || capture_mode == 2) return 0;
  if (capture_mode == 1 && !pthread_equal(pthread_self(), capturer)) return 0;
  return refuse(cudaErrorStreamCaptureUnsupported, call);
}
#define SAFE(call) do { E found = unsafe(#call); if (found) return found; } while (0)

static int inside(const struct block *all, int count, const void *p) {
  for (int i = 0; i < count; i++)
    if ((const char *)p >= all[i].at && (const char *)p < all[i].at + all[i].size) return 1;
  return 0;
}

/* The device. */
E cudaGetDeviceCount(int *n) { *n = 1; return 0; }
E cudaGetDevice(int *d) { *d = 0; return 0; }
E cudaSetDevice(int d) { return d ? fail(cudaErrorInvalidDevice) : 0; }
E cudaDriverGetVersion(int *v) { *v = CUDART_VERSION; return 0; }
E cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return 0; }
E cudaDeviceGetStreamPriorityRange(int *low, int *high) { *low = 0; *high = -5; return 0; }
E cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) { *v = 64; return 0; }
E cudaGetLastError(void) { E found = last; last = 0; return found; }
E cudaPeekAtLastError(void) { return last; }
E cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "Stand-in");
  p->totalGlobalMem = MEMORY;
  p->major = 9;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = p->sharedMemPerMultiprocessor = 232448;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->textureAlignment = 512;
  return 0;
}
E cudaGetDriverEntryPointByVersion(const char *s, void **f, unsigned v, unsigned long long flags,
                                   enum cudaDriverEntryPointQueryResult *found) {
  *f = NULL;
  if (found) *found = cudaDriverEntryPointSymbolNotFound;
  return 0;
}
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }

/* Memory: zero, and not touched by copies, but for single values. */
E cudaMalloc(void **p, size_t n) {
  SAFE(cudaMalloc);
  n = (n + 8191) & ~(size_t)4095;
  pthread_mutex_lock(&lock);
  char *found = used + n > MEMORY || devices == MOST
      ? MAP_FAILED : mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found != MAP_FAILED) {
    device[devices++] = (struct block){found, n};
    used += n;
  }
  pthread_mutex_unlock(&lock);
  *p = found;
  return found == MAP_FAILED ? fail(cudaErrorMemoryAllocation) : 0;
}
E cudaFree(void *p) {
  SAFE(cudaFree);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < devices; i++)
    if (device[i].at == p) {
      munmap(p, device[i].size);
      used -= device[i].size;
      device[i] = device[--devices];
      break;
    }
  pthread_mutex_unlock(&lock);
  return 0;
}
E cudaMemGetInfo(size_t *free_bytes, size_t *whole) { *whole = MEMORY; *free_bytes = MEMORY - used; return 0; }
E cudaHostAlloc(void **p, size_t n, unsigned flags) {
  SAFE(cudaHostAlloc);
  *p = calloc(1, n);
  host[hosts++ % MOST] = (struct block){*p, n};
  return 0;
}
E cudaFreeHost(void *p) { SAFE(cudaFreeHost); return 0; }
E cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  a->type = inside(device, devices, p) ? cudaMemoryTypeDevice
      : inside(host, hosts < MOST ? hosts : MOST, p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->devicePointer = a->type == cudaMemoryTypeUnregistered ? NULL : (void *)p;
  return 0;
}
E cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, S s) {
  if (capturing && s == capturing) return 0;
  if (kind == cudaMemcpyDeviceToHost || (kind == cudaMemcpyHostToDevice && n <= 64)) memcpy(to, from, n);
  return 0;
}
E cudaMemsetAsync(void *p, int v, size_t n, S s) { return 0; }

/* Streams and events: all is done at once. */
E cudaStreamCreateWithPriority(S *s, unsigned flags, int p) { *s = (S)(streams += 16); return 0; }
E cudaDeviceSynchronize(void) { SAFE(cudaDeviceSynchronize); return 0; }
E cudaStreamSynchronize(S s) {
  if (capturing && s == capturing) return refuse(cudaErrorStreamCaptureUnsupported, "wait for the capturing stream");
  SAFE(cudaStreamSynchronize);
  return 0;
}
E cudaStreamQuery(S s) { SAFE(cudaStreamQuery); return 0; }
E cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { *e = calloc(1, sizeof(uintptr_t)); return 0; }
E cudaEventDestroy(cudaEvent_t e) { return 0; }
E cudaEventQuery(cudaEvent_t e) { SAFE(cudaEventQuery); return 0; }
E cudaEventSynchronize(cudaEvent_t e) { SAFE(cudaEventSynchronize); return 0; }
E cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = 0.5f; return 0; }
E cudaEventRecordWithFlags(cudaEvent_t e, S s, unsigned flags) {
  *(uintptr_t *)e = capturing && s == capturing ? capture : 0;
  return 0;
}
E cudaEventRecord(cudaEvent_t e, S s) { return cudaEventRecordWithFlags(e, s, 0); }
E cudaStreamWaitEvent(S s, cudaEvent_t e, unsigned flags) {
  if (capturing && s == capturing && *(uintptr_t *)e != capture)
    return refuse(cudaErrorStreamCaptureIsolation, "the capture waits for what it does not hold");
  return 0;
}

/* Captures and graphs. */
E cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  int before = own_mode;
  own_mode = *mode;
  *mode = before;
  return 0;
}
E cudaStreamBeginCapture(S s, enum cudaStreamCaptureMode mode) {
  capturing = s;
  capture_mode = mode;
  capturer = pthread_self();
  broken = 0;
  capture++;
  return 0;
}
E cudaStreamEndCapture(S s, cudaGraph_t *g) {
  capturing = NULL;
  *g = broken ? NULL : malloc(1);
  return broken ? fail(cudaErrorStreamCaptureInvalidated) : 0;
}
static enum cudaStreamCaptureStatus status_of(S s) {
  return capturing && s == capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}
E cudaStreamIsCapturing(S s, enum cudaStreamCaptureStatus *status) { *status = status_of(s); return 0; }
E cudaStreamGetCaptureInfo(S s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
                           const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n) {
  *status = status_of(s);
  if (id) *id = capture;
  return 0;
}
E cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) { *e = malloc(1); return 0; }
E cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { *n = 1; return 0; }
E cudaGraphLaunch(cudaGraphExec_t e, S s) { return 0; }
E cudaGraphDestroy(cudaGraph_t g) { SAFE(destroy a graph); return 0; }
E cudaGraphExecDestroy(cudaGraphExec_t e) { SAFE(destroy a graph); return 0; }

/* Kernels. */
E cudaLaunchKernel(const void *f, dim3 grid, dim3 blocks, void **arguments, size_t shared, S s) {
  if (capturing && s != capturing) fprintf(stderr, "standin: a kernel beside the capture\n");
  return 0;
}
E cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) { return 0; }
E cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->ptxVersion = a->binaryVersion = 90;
  return 0;
}
E cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v) { return 0; }
E cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int size, size_t shared, unsigned x) {
  *n = 2;
  return 0;
}
E cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int size, size_t shared) { *n = 2; return 0; }

/* What torch is linked to of the driver, and never calls here. */
#define NEVER(name) int name(void) { return 1; }
NEVER(cuCtxGetCurrent) NEVER(cuCtxSetCurrent) NEVER(cuDeviceGet) NEVER(cuDeviceGetAttribute)
NEVER(cuDevicePrimaryCtxRetain) NEVER(cuFuncGetAttribute) NEVER(cuFuncSetAttribute) NEVER(cuFuncSetCacheConfig)
NEVER(cuGetErrorString) NEVER(cuLaunchCooperativeKernel) NEVER(cuLaunchKernel) NEVER(cuLinkAddData_v2)
NEVER(cuLinkComplete) NEVER(cuLinkCreate_v2) NEVER(cuModuleGetFunction) NEVER(cuModuleLoad) NEVER(cuModuleLoadData)
NEVER(cuModuleLoadDataEx) NEVER(cuModuleUnload) NEVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NEVER(cuPointerGetAttribute) NEVER(cuTensorMapEncodeTiled)
