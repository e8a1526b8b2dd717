//! The driver functions that `cust` and this crate call by their C names, each defined here to forward to the
//! function of the library that is found at run time.
//!
//! `cust_raw` declares these functions for the linker to find in `libcuda`. Defining them instead lets one
//! binary be built and started anywhere. Signatures are `cust_raw`'s (the CUDA 11.4 interface, which newer drivers keep),
//! so a caller through `cust_raw` and the definition here agree by construction.

use super::{CallSlot, forward};
use cust_raw::*;
use std::ffi::{c_char, c_void};

forward! {
    [#[unsafe(no_mangle)]] pub unsafe extern "C":
    // Referenced by `cust`: all that it references, used here or not, since what is linked of it is not ours to say.
    cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArray3DGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, h_array: CUarray);
    cuArrayDestroy(h_array: CUarray);
    cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice);
    cuCtxDestroy_v2(ctx: CUcontext);
    cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32);
    cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache);
    cuCtxGetCurrent(pctx: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetFlags(flags: *mut u32);
    cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit);
    cuCtxGetSharedMemConfig(p_config: *mut CUsharedconfig);
    cuCtxGetStreamPriorityRange(least_priority: *mut i32, greatest_priority: *mut i32);
    cuCtxPopCurrent_v2(pctx: *mut CUcontext);
    cuCtxPushCurrent_v2(ctx: CUcontext);
    cuCtxSetCacheConfig(config: CUfunc_cache);
    cuCtxSetCurrent(ctx: CUcontext);
    cuCtxSetLimit(limit: CUlimit, value: usize);
    cuCtxSetSharedMemConfig(config: CUsharedconfig);
    cuCtxSynchronize();
    cuDestroyExternalMemory(ext_mem: CUexternalMemory);
    cuDeviceGet(device: *mut CUdevice, ordinal: i32);
    cuDeviceGetAttribute(pi: *mut i32, attrib: CUdevice_attribute, dev: CUdevice);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice);
    cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    cuDevicePrimaryCtxReset_v2(dev: CUdevice);
    cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);
    cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32);
    cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    cuDriverGetVersion(driver_version: *mut i32);
    cuEventCreate(ph_event: *mut CUevent, flags: u32);
    cuEventDestroy_v2(h_event: CUevent);
    cuEventElapsedTime(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent);
    cuEventQuery(h_event: CUevent);
    cuEventRecord(h_event: CUevent, h_stream: CUstream);
    cuEventSynchronize(h_event: CUevent);
    cuExternalMemoryGetMappedBuffer(dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory, buffer_desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
    cuFuncGetAttribute(pi: *mut i32, attrib: CUfunction_attribute, hfunc: CUfunction);
    cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache);
    cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig);
    cuGetErrorString(error: CUresult, p_str: *mut *const c_char);
    cuGraphAddKernelNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphCreate(ph_graph: *mut CUgraph, flags: u32);
    cuGraphDebugDotPrint(h_graph: CUgraph, path: *const c_char, flags: u32);
    cuGraphDestroy(h_graph: CUgraph);
    cuGraphGetEdges(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize);
    cuGraphGetNodes(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
    cuGraphKernelNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
    cuGraphNodeGetType(h_node: CUgraphNode, kind: *mut CUgraphNodeType);
    cuImportExternalMemory(ext_mem_out: *mut CUexternalMemory, mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    cuInit(flags: u32);
    cuLaunchHostFunc(h_stream: CUstream, function: CUhostFn, user_data: *mut c_void);
    cuLaunchKernel(f: CUfunction, grid_dim_x: u32, grid_dim_y: u32, grid_dim_z: u32, block_dim_x: u32, block_dim_y: u32, block_dim_z: u32, shared_mem_bytes: u32, h_stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLinkAddData_v2(state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char, num_options: u32, options: *mut CUjit_option, option_values: *mut *mut c_void);
    cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
    cuLinkCreate_v2(num_options: u32, options: *mut CUjit_option, option_values: *mut *mut c_void, state_out: *mut CUlinkState);
    cuLinkDestroy(state: CUlinkState);
    cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
    cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream);
    cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
    cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: u32);
    cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);
    cuMemFreeAsync(dptr: CUdeviceptr, h_stream: CUstream);
    cuMemFreeHost(p: *mut c_void);
    cuMemFree_v2(dptr: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemPrefetchAsync(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, h_stream: CUstream);
    cuMemcpy2D_v2(p_copy: *const CUDA_MEMCPY2D);
    cuMemcpyAtoH_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize);
    cuMemcpyDtoDAsync_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream);
    cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize);
    cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream);
    cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize);
    cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize);
    cuMemcpyHtoDAsync_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream);
    cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize);
    cuMemsetD16Async(dst_device: CUdeviceptr, us: u16, n: usize, h_stream: CUstream);
    cuMemsetD16_v2(dst_device: CUdeviceptr, us: u16, n: usize);
    cuMemsetD32Async(dst_device: CUdeviceptr, ui: u32, n: usize, h_stream: CUstream);
    cuMemsetD32_v2(dst_device: CUdeviceptr, ui: u32, n: usize);
    cuMemsetD8Async(dst_device: CUdeviceptr, uc: u8, n: usize, h_stream: CUstream);
    cuMemsetD8_v2(dst_device: CUdeviceptr, uc: u8, n: usize);
    cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);
    cuModuleGetGlobal_v2(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char);
    cuModuleLoad(module: *mut CUmodule, fname: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, num_options: u32, options: *mut CUjit_option, option_values: *mut *mut c_void);
    cuModuleUnload(hmod: CUmodule);
    cuOccupancyAvailableDynamicSMemPerBlock(dynamic_smem_size: *mut usize, func: CUfunction, num_blocks: i32, block_size: i32);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks: *mut i32, func: CUfunction, block_size: i32, dynamic_smem_size: usize);
    cuOccupancyMaxPotentialBlockSize(min_grid_size: *mut i32, block_size: *mut i32, func: CUfunction, block_size_to_dynamic_smem_size: CUoccupancyB2DSize, dynamic_smem_size: usize, block_size_limit: i32);
    cuStreamCreateWithPriority(ph_stream: *mut CUstream, flags: u32, priority: i32);
    cuStreamDestroy_v2(h_stream: CUstream);
    cuStreamGetFlags(h_stream: CUstream, flags: *mut u32);
    cuStreamGetPriority(h_stream: CUstream, priority: *mut i32);
    cuStreamSynchronize(h_stream: CUstream);
    cuStreamWaitEvent(h_stream: CUstream, h_event: CUevent, flags: u32);
    cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, p_res_desc: *const CUDA_RESOURCE_DESC);
    cuSurfObjectDestroy(surf_object: CUsurfObject);
    cuSurfObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject);
    cuTexObjectCreate(p_tex_object: *mut CUtexObject, p_res_desc: *const CUDA_RESOURCE_DESC, p_tex_desc: *const CUDA_TEXTURE_DESC, p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC);
    cuTexObjectDestroy(tex_object: CUtexObject);
    cuTexObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject);
    // Used by this crate only.
    cuCtxEnablePeerAccess(peer_context: CUcontext, flags: u32);
    cuDeviceCanAccessPeer(can_access_peer: *mut i32, dev: CUdevice, peer_dev: CUdevice);
    cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: i32);
    cuGraphExecDestroy(h_graph_exec: CUgraphExec);
    cuGraphExecKernelNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphInstantiateWithFlags(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: u64);
    cuGraphLaunch(h_graph_exec: CUgraphExec, h_stream: CUstream);
    cuGraphMemcpyNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D);
    cuGraphMemsetNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
    cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: u32);
    cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream);
    cuStreamBeginCapture_v2(h_stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamIsCapturing(h_stream: CUstream, status: *mut CUstreamCaptureStatus);
    cuStreamEndCapture(h_stream: CUstream, ph_graph: *mut CUgraph);
}
